"""What lint.py needs to know of the shape of the code: where functions begin and end, which rooms include which."""
import ast
import bisect
import re

# Comments, raw strings, strings, character literals (not the ' of 1'000) and preprocessor directives.
_NOT_CODE = re.compile(
    r'//[^\n]*'
    r'|/\*.*?\*/'
    r'|R"(?P<tag>[^\s()\\]{0,16})\(.*?\)(?P=tag)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'"
    r'|^[ \t]*#(?:\\\n|[^\n])*',
    re.DOTALL | re.MULTILINE)
_SCOPE = re.compile(r'\b(namespace|class|struct|union|enum)\b')
_TEMPLATE_LIST = re.compile(r'<[^<>]*>')


def strip_cpp(text):
    """`text` of the same length and lines, with blanks for comments, literals and directives."""
    return _NOT_CODE.sub(lambda match: re.sub(r'[^\n]', ' ', match.group(0)), text)


def _outside_templates(head):
    """`head` without template argument lists."""
    while True:
        flat = _TEMPLATE_LIST.sub(' ', head)
        if flat == head:
            return head
        head = flat


def _opens_scope(head):
    """Whether the text before a brace opens a namespace, a class or a linkage block rather than a function."""
    head = _outside_templates(head)
    if re.fullmatch(r'\s*extern\s*', head):
        return True
    found = _SCOPE.search(head)
    return bool(found) and '(' not in re.sub(r'\b(alignas|__attribute__|__align__)\s*\([^()]*\)+', '', head)


def _initialises(head):
    """Whether a brace after `head` initialises a value: `= {`, or a member in a constructor's list."""
    if '(' not in head or re.search(r'(=|,|return)\s*$', head):
        return True
    members = re.search(r'\)\s*(?:noexcept\s*)?:(?!:)(.*)$', head, re.DOTALL)
    return bool(members) and bool(re.search(r'[\w>]\s*$', members.group(1)))


def _name_of(definition):
    """The name before the parameter list; for a macro such as TEST_CASE the macro's."""
    return re.search(r'(\S*)\s*\(', re.sub(r'__launch_bounds__\((?:[^()]|\([^()]*\))*\)', ' ', definition)).group(1)


def cpp_functions(text):
    """(first line, last line, name) of each function body in C++ source, tests included; lambdas count to their function."""
    code = strip_cpp(text)
    starts = [0] + [match.end() for match in re.finditer('\n', text)]
    line_at = lambda position: bisect.bisect_right(starts, position)
    found, depth, body, head_from = [], 0, None, 0  # body: (depth outside it, where its head begins) of the open function
    parens = 0
    for match in re.finditer(r'[{};()]', code):
        here, mark = match.start(), match.group(0)
        if body is None and mark in '()':
            parens += 1 if mark == '(' else -1
        elif mark == '{':
            head = code[head_from:here]
            if body is None:
                if parens == 0 and not _opens_scope(head) and not _initialises(head):
                    body = (depth, head_from + len(head) - len(head.lstrip()), False)
                elif parens or _initialises(head) and not _opens_scope(head):
                    body = (depth, None, parens > 0)  # a value in braces: skip to its end
                else:
                    head_from = here + 1
            depth += 1
        elif mark == '}':
            depth -= 1
            if body is not None and depth == body[0]:
                if body[1] is not None:
                    found.append((line_at(body[1]), line_at(here), _name_of(code[body[1]:])))
                    head_from = here + 1
                body = None  # after a value the head goes on: `a_{1}, b_{2} {`
            elif body is None:
                head_from = here + 1
        elif mark == ';' and body is None and parens == 0:
            head_from = here + 1
    return found


def _member_function(head, class_name):
    """The name of the member function that `head`, the text of a declaration up to its `;` or body, declares, if any.

    Constructors, destructors, operators and what is deleted do not count.
    """
    flat = _outside_templates(re.sub(r'^\s*(?:(?:public|private|protected)\s*:(?!:)\s*)+', '', head)).strip()
    if re.match(r'(using|friend|typedef|static_assert)\b', flat) or re.search(r'=\s*delete\s*$', flat):
        return None
    found = re.match(r'[^=(]*?([~\w]+)\s*\(', flat)
    if not found or found.group(1) in (class_name, '~' + class_name, 'alignas', 'decltype') or 'operator' in found.group(0):
        return None
    return found.group(1)


def cpp_classes(text):
    """(line, name, member functions) of each class and struct that C++ source defines; those nested in it are its own."""
    code = strip_cpp(text)
    found, scopes, head_from, parens, skip = [], [], 0, 0, None  # skip: depth at which a body or a value that is passed over ends
    for match in re.finditer(r'[{};()]', code):
        here, mark = match.start(), match.group(0)
        if skip is not None:
            skip += {'{': 1, '}': -1}.get(mark, 0)
            if skip == 0:
                skip, head_from = None, head_from if value else here + 1
            continue
        inside = scopes[-1] if scopes else None
        head = code[head_from:here]
        if mark in '()':
            parens += 1 if mark == '(' else -1
        elif mark == '{':
            if parens == 0 and _opens_scope(head):
                named = re.search(r'\b(?:class|struct)\s+(?:alignas\([^()]*\)\s*)?((?:\w+::)*\w+)', _outside_templates(head))
                scopes.append([code.count('\n', 0, here) + 1, named.group(1), 0] if named and not re.search(r'\benum\b', head) else None)
                head_from = here + 1
            else:
                value = parens > 0 or _initialises(head)
                if not value and inside and _member_function(head, inside[1].split('::')[-1]):
                    inside[2] += 1
                skip = 1
        elif mark == '}':
            if scopes and (done := scopes.pop()):
                found.append((done[0], done[1], done[2]))
            head_from = here + 1
        elif parens == 0:
            if inside and _member_function(head, inside[1].split('::')[-1]):
                inside[2] += 1
            head_from = here + 1
    return found


def python_functions(text):
    """(first line, last line, name) of each function in Python source."""
    return [(node.lineno, node.end_lineno, node.name) for node in ast.walk(ast.parse(text))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def find_circles(edges):
    """Circles in a directed graph {node: {successor: ...}}: one list of nodes for each group that reaches itself, smallest way round."""
    circles, seen = [], set()
    for start in sorted(edges):
        if start in seen:
            continue
        came_from, queue = {}, [start]
        while queue and start not in came_from:
            node = queue.pop(0)
            for successor in sorted(edges.get(node, {})):
                if successor not in came_from:
                    came_from[successor] = node
                    queue.append(successor)
        if start not in came_from:
            continue
        circle, node = [start], came_from[start]
        while node != start:
            circle.insert(1, node)
            node = came_from[node]
        if not seen & set(circle):
            circles.append(circle)
        seen |= set(circle)
    return circles

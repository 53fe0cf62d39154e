"""Byte-level BPE tokenizers as Llama 3, Qwen2 and GPT-2 (OPT) have them, small, with golden ids."""
import json

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

# The patterns of the published tokenizer.json files.
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

# The patterns of DeepSeek's tokenizer.json, one Split each.
DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"]

SPECIAL = {"mistral": ["<|endoftext|>"], "qwen3": ["<|endoftext|>", "<|im_start|>"], "llama3": ["<|begin_of_text|>", "<|end_of_text|>"], "qwen2": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
           "opt": ["<s>", "</s>"]}

OTHER_SCRIPTS = ["Grüße aus Köln, où l'été déjà naît", "Привет, мир! Это проверка.", "今日は世界。漢字とかな。", "안녕하세요 세계",
                 "नमस्ते दुनिया", "שלום עולם", "مرحبا بالعالم ١٢٣", "👩‍👩‍👧 and 🇩🇪 flags"] * 4

TEXTS = ["", " ", "Hello, world!", "  two  spaces   three", "don't DON'T we'll WE'LL I'm it'S 'tis they'd've", "x=1234567890;",
         "a\n\nb\r\nc\n \n  d", "trailing   ", "\ttab\t\tstop \t mixed", "for (int i = 0; i < n; ++i) { a[i] += 1.5e-3; }",
         "Ünïcödé naïve café", "cafe\u0301 nai\u0308ve A\u030a \u1e9b\u0323", "\u212b \u2126 \ufb01 \u00bd \u2460 \u2168 \u0f33",
         "漢字かな交じり文。", "한국어 \u1112\u1161\u11ab", "नमस्ते", "שלום", "١٢٣ ۴۵۶ ⅷ 2²", "👩‍👩‍👧 🇩🇪 👍🏽", "\u00a0nbsp\u00a0\u00a0x \u3000 wide",
         "nel\u0085ls\u2028ps\u2029vt\u000bff\u000czwsp\u200bmvs\u180e", "'\u017f long s, \u212a kelvin, '\u212a", "\ufeffbom", "a\u0000b",
         "\u0378 unassigned \ue000 private \U0001f9ff", "...!!!???\n\n\n", "a_b__c-d--e", "\u02b0\u01c5\u0903\u20ac\u00b1\u2040",
         "<|begin_of_text|>Hi<|end_of_text|>", "<|im_start|>user\nHi<|im_end|>\n", "<|endoftext|><|endoftext|> <|endof", "<s>x</s> y </s>",
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "the the the kernel kernels", " leading", "\nnew\n"]


def build(kind):
    split = {"llama3": LLAMA3, "qwen2": QWEN2}.get(kind)
    bpe = models.BPE(ignore_merges=True) if kind == "llama3" else models.BPE()
    tokenizer = tokenizers.Tokenizer(bpe)
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if kind == "mistral":  # the form of SmolLM: digits one by one, then the words of GPT-2
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    elif kind == "qwen3":  # the form of DeepSeek: several splits, normalizers in a sequence
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [*[pre_tokenizers.Split(Regex(p), behavior="isolated", invert=False) for p in DEEPSEEK], level])
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFC()])
    elif split:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(split), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if kind == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def make(kind, directory, text_file, vocab_size):
    if kind not in SPECIAL:
        return
    special = SPECIAL[kind]
    tokenizer = build(kind)
    trainer = trainers.BpeTrainer(vocab_size=vocab_size - len(special), show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator([text_file.read_text(), *OTHER_SCRIPTS], trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    if kind == "llama3":  # published files add a start token here; csdsim adds none
        start = special[0]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{start} $A", special_tokens=[(start, tokenizer.token_to_id(start))])
    if kind == "opt":  # OPT is published in the older form of two files
        tokenizer.model.save(str(directory))
        texts = [t for t in TEXTS if not any(s in t for s in special)]
    else:
        tokenizer.save(str(directory / "tokenizer.json"))
        texts = TEXTS
    cases = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
    # Ids whose bytes are cut inside a character.
    ids = tokenizer.encode("漢👩", add_special_tokens=False).ids
    cut = [[i] for i in ids] + [ids[1:], ids[:-1]]
    document = {"made_by": f"tokenizers {tokenizers.__version__}", "cases": cases,
                "cut": [{"ids": c, "decoded": tokenizer.decode(c, skip_special_tokens=False)} for c in cut]}
    (directory / "tokens.json").write_text(json.dumps(document) + "\n")

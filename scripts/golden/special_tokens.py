"""Golden ids of texts with special and added tokens, by the tokenizers of Hugging Face transformers.

Usage: scripts/golden/special_tokens.py > tests/data/golden/special_tokens.json

The sentencepiece model is that of models/llama-gqa-6m with a blank put before text, as Llama has it. transformers puts
none before text that begins with one, where sentencepiece does; no text here does at such a place.
"""
import json
import pathlib
import random
import sys
import tempfile

import tokenizers
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
ADD_PREFIX = b"\x1a\x02\x18\x01"  # normalizer_spec.add_dummy_prefix = true, merged into the model's
FRAGMENTS = ["int main(void)", "static", "return x;", "\n", "\t", "é", "漢字", "x = 1", "<", "s>", "</", "a  b", "[INST]", "// done"]
ADDED = ["<|im_start|>", "<|im_end|>"]


def texts(specials, blanks_after, count):
    rng = random.Random(7)
    made = []
    while len(made) < count:
        text, special_before = "", True
        for _ in range(rng.randint(1, 8)):
            if rng.random() < 0.45:
                text += rng.choice(specials)
                special_before = True
            else:
                blank = " " if rng.random() < 0.4 and (not special_before or (blanks_after and text)) else ""
                text += blank + rng.choice(FRAGMENTS)
                special_before = False
        if any(s in text for s in specials) and text not in made:
            made.append(text)
    return made


def cases(tokenizer, texts):
    return [{"text": t, "ids": tokenizer.encode(t, add_special_tokens=False)} for t in texts]


def llama(legacy, count):
    config = {"tokenizer_class": "LlamaTokenizer", "legacy": legacy, "add_bos_token": False, "bos_token": "<s>", "eos_token": "</s>",
              "unk_token": "<unk>",
              "added_tokens_decoder": {str(4096 + i): {"content": t, "normalized": False, "special": True} for i, t in enumerate(ADDED)}}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "tokenizer.model").write_bytes((ROOT / "models/llama-gqa-6m/tokenizer.model").read_bytes() + ADD_PREFIX)
        (path / "tokenizer_config.json").write_text(json.dumps(config))
        tokenizer = transformers.LlamaTokenizer.from_pretrained(folder)
        return {"config": config, "cases": cases(tokenizer, texts(["<s>", "</s>", "<unk>", *ADDED], not legacy, count))}


def gpt2(count):
    opt = ROOT / "tests/data/golden/opt"
    vocabulary = json.loads((opt / "vocab.json").read_text())
    first = max(vocabulary.values()) + 1
    special = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": {"content": "<pad>", "normalized": True}}
    added = {"</s>": first, "<pad>": first + 1, ADDED[0]: first + 2}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        for name in ("vocab.json", "merges.txt"):
            (path / name).write_bytes((opt / name).read_bytes())
        tokenizer = transformers.GPT2Tokenizer.from_pretrained(folder, bos_token="</s>", eos_token="</s>", unk_token="</s>")
        tokenizer.add_special_tokens({"pad_token": "<pad>", "additional_special_tokens": [ADDED[0]]})
        assert {t: tokenizer.convert_tokens_to_ids(t) for t in added} == added
        return {"special_tokens_map": special, "added_tokens": added, "cases": cases(tokenizer, texts(list(added), True, count))}


def stripping(count):
    """Tokens that take the white space beside them."""
    tokens = {"<both>": dict(lstrip=True, rstrip=True), "<left>": dict(lstrip=True), "<right>": dict(rstrip=True), "<plain>": {}}
    document = json.loads((ROOT / "tests/data/golden/qwen2/tokenizer.json").read_text())
    first = 512  # the size of the vocabulary: tokenizers numbers new tokens from there
    document["added_tokens"] += [{"id": first + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": i % 2 == 1,
                                  "special": True, **flags} for i, (t, flags) in enumerate(tokens.items())]
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(document))
    rng, made = random.Random(9), []
    spaces = ["", " ", "  ", "\n", "\t ", "\u00a0", "\u3000", "\u200b", " \u2003\r\n"]
    while len(made) < count:
        text = "".join(rng.choice([rng.choice(list(tokens)), rng.choice(spaces), rng.choice(spaces), rng.choice(FRAGMENTS)]) for _ in range(9))
        if any(t in text for t in tokens):
            made.append({"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids})
    return {"added_tokens": document["added_tokens"], "cases": made}


document = {"made_by": f"transformers {transformers.__version__}", "sentencepiece": llama(False, 48), "legacy": llama(True, 30),
            "vocabulary_and_merges": gpt2(40), "stripping": stripping(60)}
json.dump(document, sys.stdout, ensure_ascii=False)
print()

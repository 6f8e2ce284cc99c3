//! The example's tokenizer against ids and text from an independent implementation. The model
//! file is the one that `FUSELINE_MODEL` names, else the example's, which is fetched if missing.

#[path = "../examples/smollm2/fetch.rs"]
mod fetch;
#[path = "../examples/smollm2/tokenizer.rs"]
mod tokenizer;

use fuseline_runtime::source::Gguf;
use serde_json::Value;
use std::sync::LazyLock;
use tokenizer::{Tokenizer, TokenizerError};

/// Loaded once, so that a missing file is fetched once.
static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let path = std::env::var_os("FUSELINE_MODEL").map(Into::into);
    let path = fetch::model(path).unwrap_or_else(|error| panic!("{error}"));
    Tokenizer::from_gguf(&Gguf::open(path).unwrap()).unwrap()
});

fn reference() -> Vec<Value> {
    let text = include_str!("smollm2_q4_1_greedy.json");
    let reference: Value = serde_json::from_str(text).unwrap();
    reference["sequences"].as_array().unwrap().clone()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// What a stream says for `ids`, and how many of them say nothing yet.
fn decode(tokenizer: &Tokenizer, ids: &[u32]) -> (String, usize) {
    let mut stream = tokenizer.stream();
    let pieces: Vec<_> = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
    let silent = pieces.iter().filter(|piece| piece.is_none()).count();
    let rest = stream.finish().map(String::from).unwrap_or_default();
    (pieces.into_iter().flatten().collect::<String>() + &rest, silent)
}

#[test]
fn prompts_and_answers_are_those_of_the_reference() {
    let tokenizer = &*TOKENIZER;
    let sequences = reference();
    assert_eq!(sequences.len(), 4);
    for sequence in sequences {
        let prompt = sequence["prompt"].as_str().unwrap();
        let prompt_ids = ids(&sequence["prompt_ids"]);
        assert_eq!(tokenizer.encode(prompt).unwrap(), prompt_ids, "{prompt:?}");
        assert_eq!(decode(tokenizer, &prompt_ids).0, prompt);
        let (text, _) = decode(tokenizer, &ids(&sequence["greedy_ids"]));
        assert_eq!(text, sequence["greedy_text"].as_str().unwrap());
    }
}

#[test]
fn the_chat_template_is_that_of_the_reference() {
    let sequences = reference();
    let sequence = sequences.iter().find(|sequence| sequence["name"] == "chat").unwrap();
    assert_eq!(tokenizer::chat("What is gravity?"), sequence["prompt"].as_str().unwrap());
}

#[test]
fn only_the_end_token_ends() {
    let tokenizer = &*TOKENIZER;
    let end = tokenizer.encode("<|im_end|>").unwrap();
    assert_eq!(end, [2]);
    assert!(tokenizer.is_end(2));
    assert!(!tokenizer.is_end(0) && !tokenizer.is_end(1) && !tokenizer.is_end(504));
}

/// Characters that no token of the vocabulary covers come in pieces that are not UTF-8.
#[test]
fn text_comes_back_in_whole_characters() {
    let tokenizer = &*TOKENIZER;
    for text in
        ["", "naïve café", "1234567890", "日本語のテキスト", "🦀🦀 and 👩‍👩‍👧", "\t \r\n  x", "ﷺ"]
    {
        let ids = tokenizer.encode(text).unwrap();
        assert_eq!(decode(tokenizer, &ids).0, text);
    }
    let crab = tokenizer.encode("🦀").unwrap();
    assert!(crab.len() > 1, "{crab:?} shows nothing about characters in pieces");
    let (text, silent) = decode(tokenizer, &crab);
    assert_eq!((text.as_str(), silent), ("🦀", crab.len() - 1));

    // A character that is begun and not finished, in the middle and at the end.
    let [begun, space] = [crab[0], tokenizer.encode(" ").unwrap()[0]];
    assert_eq!(decode(tokenizer, &[begun, space]).0, "\u{FFFD} ");
    assert_eq!(decode(tokenizer, &[space, begun]).0, " \u{FFFD}");
    let digits = tokenizer.encode("2024").unwrap();
    assert_eq!(digits.len(), 4, "each digit is a token");
}

#[test]
fn ids_outside_the_vocabulary_and_other_vocabularies_are_errors() {
    let error = TOKENIZER.stream().push(49_152).unwrap_err();
    assert_eq!(error.to_string(), "expected a token id below 49152, found 49152");

    let pair = |key: &str, text: &str| {
        let length = |text: &str| (text.len() as u64).to_le_bytes();
        let key = [&length(key)[..], key.as_bytes(), &8u32.to_le_bytes()].concat();
        [&key[..], &length(text), text.as_bytes()].concat()
    };
    let file = |pairs: &[Vec<u8>]| {
        let head = [&b"GGUF\x03\0\0\0"[..], &[0; 8], &(pairs.len() as u64).to_le_bytes()].concat();
        Gguf::from_bytes([head, pairs.concat()].concat()).unwrap()
    };
    let error = Tokenizer::from_gguf(&file(&[])).err().unwrap();
    assert!(matches!(error, TokenizerError::Source(_)), "{error}");
    let error =
        Tokenizer::from_gguf(&file(&[pair("tokenizer.ggml.model", "llama")])).err().unwrap();
    let expected = "metadata key `tokenizer.ggml.model`: expected `gpt2`, found `llama`";
    assert_eq!(error.to_string(), expected);
}

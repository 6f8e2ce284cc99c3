//! Text to token ids and back, with the vocabulary that the GGUF file carries.
//!
//! The metadata says `gpt2` (byte-level BPE) and `smollm` (how text is cut before merging: each
//! digit by itself, the rest as GPT-2 does). Byte-level means that a token's text is written in
//! an alphabet of 256 characters, one for each byte.

use fuseline_runtime::source::{Gguf, SourceError};
use std::collections::HashMap;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::{AddedToken, PreTokenizerWrapper};

/// What the model is told first if nothing else is (from its own chat template).
const SYSTEM: &str = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";

/// `tokenizer.ggml.token_type` of a token that stands for no text of its own.
const CONTROL: i32 = 3;
/// `tokenizer.ggml.token_type` of a token that is found in text before anything is merged.
const USER_DEFINED: i32 = 4;

/// Why there is no tokenizer, or why text cannot be encoded or decoded.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The vocabulary is missing from the file.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The vocabulary is of a kind that this example does not read, or contradicts itself.
    #[error("metadata key `{key}`: expected {expected}, found {found}")]
    Metadata {
        /// The key.
        key: &'static str,
        /// What this example reads.
        expected: String,
        /// What the file says.
        found: String,
    },
    /// The `tokenizers` crate refuses the vocabulary or a text.
    #[error("tokenizer: {0}")]
    Library(#[from] tokenizers::Error),
    /// An id that is not in the vocabulary.
    #[error("expected a token id below {count}, found {id}")]
    UnknownId {
        /// The id.
        id: u32,
        /// How many tokens there are.
        count: usize,
    },
}

/// The tokenizer of a model file.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    tokens: Vec<Token>,
    end_ids: Vec<u32>,
}

/// What a token adds to the output.
struct Token(Box<[u8]>);

impl Tokenizer {
    /// Builds the tokenizer from the metadata of a model file.
    pub fn from_gguf(file: &Gguf) -> Result<Tokenizer, TokenizerError> {
        expect_str(file, "tokenizer.ggml.model", "gpt2")?;
        expect_str(file, "tokenizer.ggml.pre", "smollm")?;
        let texts = file.strings("tokenizer.ggml.tokens")?;
        let types = file.i32s("tokenizer.ggml.token_type")?;
        if types.len() != texts.len() {
            return Err(TokenizerError::Metadata {
                key: "tokenizer.ggml.token_type",
                expected: format!("{} elements, one a token", texts.len()),
                found: types.len().to_string(),
            });
        }

        let vocabulary: Vocab = texts.iter().map(|&text| text.to_owned()).zip(0..).collect();
        let mut model = BPE::builder().vocab_and_merges(vocabulary, merges(file)?);
        if let Some(id) = optional_id(file, "tokenizer.ggml.unknown_token_id", texts.len())? {
            model = model.unk_token(texts[id as usize].to_owned());
        }
        let mut inner = tokenizers::Tokenizer::new(model.build()?);
        inner.with_pre_tokenizer(Some(Sequence::new(vec![
            PreTokenizerWrapper::Digits(Digits::new(true)),
            PreTokenizerWrapper::ByteLevel(ByteLevel::default().add_prefix_space(false)),
        ])));
        let special = |kind: i32| matches!(kind, CONTROL | USER_DEFINED);
        let pairs = texts.iter().zip(&types);
        let added = pairs.clone().filter(|&(_, &kind)| special(kind));
        inner.add_special_tokens(added.map(|(&text, _)| AddedToken::from(text, true)))?;

        let alphabet = byte_alphabet();
        let tokens = pairs.map(|(&text, &kind)| match special(kind) {
            true => Token(text.as_bytes().into()),
            false => Token(text_bytes(text, &alphabet)),
        });
        let tokens = tokens.collect();
        let mut end_ids = Vec::new();
        for key in ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"] {
            end_ids.extend(optional_id(file, key, texts.len())?);
        }
        Ok(Tokenizer { inner, tokens, end_ids })
    }

    /// The ids of a text. Special tokens that are written in it are understood; none is added.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        Ok(self.inner.encode(text, false)?.get_ids().to_vec())
    }

    /// Decodes ids one by one.
    pub fn stream(&self) -> TextStream<'_> {
        TextStream { tokenizer: self, pending: Vec::new() }
    }

    /// Whether the model has said all it wants to.
    pub fn is_end(&self, id: u32) -> bool {
        self.end_ids.contains(&id)
    }
}

/// A conversation that begins with `prompt`, up to the point where the model speaks: the chat
/// template of SmolLM2.
pub fn chat(prompt: &str) -> String {
    format!(
        "<|im_start|>system\n{SYSTEM}<|im_end|>\n\
         <|im_start|>user\n{prompt}<|im_end|>\n\
         <|im_start|>assistant\n"
    )
}

/// Text that arrives token by token. A character may take several tokens, so a token may add
/// nothing yet.
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    /// The first bytes of a character.
    pending: Vec<u8>,
}

impl TextStream<'_> {
    /// The text that the next token completes, if any. Bytes that are not UTF-8 become `�`.
    pub fn push(&mut self, id: u32) -> Result<Option<String>, TokenizerError> {
        let count = self.tokenizer.tokens.len();
        let token = self.tokenizer.tokens.get(id as usize);
        let Token(bytes) = token.ok_or(TokenizerError::UnknownId { id, count })?;
        self.pending.extend_from_slice(bytes);
        let mut text = String::new();
        let mut complete = 0;
        for chunk in self.pending.utf8_chunks() {
            text.push_str(chunk.valid());
            complete += chunk.valid().len();
            let invalid = chunk.invalid();
            let may_continue = complete + invalid.len() == self.pending.len()
                && std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if !invalid.is_empty() && !may_continue {
                text.push(char::REPLACEMENT_CHARACTER);
                complete += invalid.len();
            }
        }
        self.pending.drain(..complete);
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// What is left when no more tokens come: `�` if a character was begun, else nothing.
    pub fn finish(self) -> Option<char> {
        (!self.pending.is_empty()).then_some(char::REPLACEMENT_CHARACTER)
    }
}

/// The merges in order of priority, each as two tokens.
fn merges(file: &Gguf) -> Result<Vec<(String, String)>, TokenizerError> {
    let key = "tokenizer.ggml.merges";
    let merges = file.strings(key)?;
    let split = merges.into_iter().map(|merge| match merge.split_once(' ') {
        Some((left, right)) => Ok((left.to_owned(), right.to_owned())),
        None => Err(TokenizerError::Metadata {
            key,
            expected: "two tokens with a space between".to_owned(),
            found: format!("`{merge}`"),
        }),
    });
    split.collect()
}

fn expect_str(file: &Gguf, key: &'static str, expected: &str) -> Result<(), TokenizerError> {
    match file.str(key)? {
        found if found == expected => Ok(()),
        found => Err(TokenizerError::Metadata {
            key,
            expected: format!("`{expected}`"),
            found: format!("`{found}`"),
        }),
    }
}

/// The token id under a key, if the file has the key.
fn optional_id(
    file: &Gguf,
    key: &'static str,
    count: usize,
) -> Result<Option<u32>, TokenizerError> {
    match file.u32(key) {
        Ok(id) if (id as usize) < count => Ok(Some(id)),
        Ok(id) => Err(TokenizerError::Metadata {
            key,
            expected: format!("a token id below {count}"),
            found: id.to_string(),
        }),
        Err(SourceError::MissingKey { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The byte that each character of the byte-level alphabet stands for. A byte that Latin-1
/// prints is written as itself, and the others, in order, as the characters from U+0100 on.
fn byte_alphabet() -> HashMap<char, u8> {
    let prints = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let themselves = (0..=u8::MAX).filter(prints).map(|byte| (char::from(byte), byte));
    let others = (0..=u8::MAX).filter(|byte| !prints(byte));
    themselves.chain(('\u{100}'..).zip(others)).collect()
}

/// The bytes that a token stands for. A character outside the alphabet stands for itself.
fn text_bytes(text: &str, alphabet: &HashMap<char, u8>) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match alphabet.get(&character) {
            Some(&byte) => bytes.push(byte),
            None => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes.into()
}

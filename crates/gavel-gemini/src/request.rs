//! Writes the request body directly as bytes.
//!
//! Order: system, tools, contents, then what may differ between turns. The bytes before the contents are the same for
//! every request of one agent and generation, so that the provider's implicit cache finds them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use serde_json::value::RawValue;

use crate::domain::journal::{CallFailure, Speaker};
use crate::domain::tool::{FailureCode, Wording};
use crate::ports::model::{CallMode, Content, FunctionResponse, Functions, ModelRequest};

/// The body of a request: what every request of one agent and generation begins with, and the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestBody {
    prefix: Bytes,
    rest: Bytes,
}

impl RequestBody {
    pub(super) fn parts(self) -> [Bytes; 2] {
        [self.prefix, self.rest]
    }

    /// The same request with a continuation token.
    pub(super) fn with_continuation(&self, token: &str) -> Self {
        let mut rest = Vec::with_capacity(self.rest.len() + token.len() + 32);
        rest.extend_from_slice(self.rest.strip_suffix(b"}").unwrap_or(&self.rest));
        rest.extend_from_slice(br#","continuationToken":"#);
        string(&mut rest, token);
        rest.push(b'}');
        Self {
            prefix: self.prefix.clone(),
            rest: rest.into(),
        }
    }
}

/// The beginning of the last request: system prompt and tools. Nearly every request begins with the same, so that it is
/// neither escaped nor copied again.
#[derive(Debug, Default)]
pub(super) struct Prefixes(ArcSwapOption<Prefix>);

#[derive(Debug)]
struct Prefix {
    system: Box<str>,
    /// `system` as JSON.
    encoded: Arc<[u8]>,
    functions: Arc<Functions>,
    bytes: Bytes,
}

impl Prefixes {
    fn get(&self, system: &str, functions: &Arc<Functions>) -> Bytes {
        let last = self.0.load();
        let last = last.as_deref().filter(|last| *last.system == *system);
        if let Some(last) = last.filter(|last| Arc::ptr_eq(&last.functions, functions)) {
            return last.bytes.clone();
        }
        let encoded = last.map_or_else(|| encode(system).into(), |last| Arc::clone(&last.encoded));
        let bytes = Bytes::from([b"{", &*encoded, tools(functions).as_bytes(), br#""contents":["#].concat());
        self.0.store(Some(Arc::new(Prefix {
            system: system.into(),
            encoded,
            functions: Arc::clone(functions),
            bytes: bytes.clone(),
        })));
        bytes
    }
}

fn encode(system: &str) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(system.len() + 64);
    if !system.is_empty() {
        encoded.extend_from_slice(br#""systemInstruction":{"parts":[{"text":"#);
        string(&mut encoded, system);
        encoded.extend_from_slice(b"}]},");
    }
    encoded
}

/// Base64 of `skip_thought_signature_validator`: the signature of a call that another model made.
const STAND_IN: &str = r#""c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=""#;

/// Writes the body of `request`. `generation` contains the fields of `generationConfig`. If `signer` is given, only the
/// signatures of that model are sent: a model refuses those of another one.
pub(super) fn body(
    request: &ModelRequest<'_>,
    generation: &str,
    signer: Option<&str>,
    prefixes: &Prefixes,
) -> RequestBody {
    let prefix = prefixes.get(request.system, request.functions);
    let contents: usize = request.contents.iter().map(size).sum();
    let mut out = Vec::with_capacity(contents * 9 / 8 + 512);
    for (n, content) in request.contents.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        write_content(&mut out, content, signer);
    }
    out.push(b']');
    // A functionCallingConfig without declarations is rejected.
    if !request.functions.declarations.is_empty() {
        write_mode(&mut out, request.mode);
    }
    if !generation.is_empty() {
        out.extend_from_slice(br#","generationConfig":{"#);
        out.extend_from_slice(generation.as_bytes());
        out.push(b'}');
    }
    out.push(b'}');
    RequestBody {
        prefix,
        rest: out.into(),
    }
}

/// `"tools":[…],`, or nothing if there are no functions. Encoded once per [`Functions`].
fn tools(functions: &Functions) -> &str {
    functions.encoded.get_or_init(|| {
        if functions.declarations.is_empty() {
            return Box::default();
        }
        let mut out = Vec::with_capacity(4096);
        out.extend_from_slice(br#""tools":[{"functionDeclarations":["#);
        for (n, declaration) in functions.declarations.iter().enumerate() {
            out.extend_from_slice(if n > 0 { br#",{"name":"# } else { br#"{"name":"# });
            string(&mut out, &declaration.name);
            out.extend_from_slice(br#","description":"#);
            string(&mut out, &declaration.description);
            out.extend_from_slice(br#","parametersJsonSchema":"#);
            out.extend_from_slice(declaration.parameters.get().as_bytes());
            out.push(b'}');
        }
        out.extend_from_slice(b"]}],");
        String::from_utf8(out)
            .unwrap_or_else(|_| unreachable!("put together from strings"))
            .into()
    })
}

fn write_content(out: &mut Vec<u8>, content: &Content<'_>, signer: Option<&str>) {
    match content {
        Content::Text(speaker, text) => {
            out.extend_from_slice(match speaker {
                Speaker::User => br#"{"role":"user","parts":[{"text":"#.as_slice(),
                Speaker::Assistant => br#"{"role":"model","parts":[{"text":"#,
            });
            string(out, text);
            out.extend_from_slice(b"}]}");
        }
        Content::Turn(turn, model) => match signer.filter(|_| signer != *model).and_then(|_| unsigned(turn)) {
            None => out.extend_from_slice(turn.get().as_bytes()),
            Some(turn) => out.extend_from_slice(&turn),
        },
        Content::Responses(responses) => {
            out.extend_from_slice(br#"{"role":"user","parts":["#);
            for (n, response) in responses.iter().enumerate() {
                if n > 0 {
                    out.push(b',');
                }
                write_response(out, response);
            }
            out.extend_from_slice(b"]}");
        }
    }
}

/// A turn without its signatures, but for a stand-in at the first call. Text that only held a signature is left out.
fn unsigned(turn: &RawValue) -> Option<Vec<u8>> {
    #[derive(serde::Deserialize)]
    struct Turn<'a> {
        #[serde(borrow)]
        parts: Vec<BTreeMap<Cow<'a, str>, &'a RawValue>>,
    }
    let Turn { mut parts } = serde_json::from_str(turn.get()).ok()?;
    let stand_in: &RawValue = serde_json::from_str(STAND_IN).ok()?;
    let mut is_first = true;
    parts.retain_mut(|part| {
        let signed = part.remove("thoughtSignature").is_some();
        if part.contains_key("functionCall") && std::mem::take(&mut is_first) {
            part.insert(Cow::Borrowed("thoughtSignature"), stand_in);
        }
        !signed || part.get("text").is_none_or(|text| text.get() != "\"\"")
    });
    let mut out = br#"{"role":"model","parts":"#.to_vec();
    serde_json::to_writer(&mut out, &parts).ok()?;
    out.push(b'}');
    (!parts.is_empty()).then_some(out)
}

/// gavel's instruction to the model, separate from the server's text, which the message also contains.
const IN_DOUBT: &str = "the outcome of this call is unknown; do not repeat it, tell the user";

/// The id is returned if and only if one was given. Text from a tool or its server has a name that marks it as
/// untrusted.
fn write_response(out: &mut Vec<u8>, response: &FunctionResponse<'_>) {
    out.extend_from_slice(br#"{"functionResponse":{"#);
    if let Some(id) = response.id {
        out.extend_from_slice(br#""id":"#);
        string(out, id);
        out.push(b',');
    }
    out.extend_from_slice(br#""name":"#);
    string(out, response.name);
    match response.outcome {
        Ok(data) => {
            out.extend_from_slice(br#","response":{"output":{"untrusted_data":"#);
            out.extend_from_slice(data.get().as_bytes());
        }
        Err(CallFailure { code, message, own, .. }) => {
            out.extend_from_slice(br#","response":{"error":{"code":"#);
            string(out, code.as_str());
            if let Some(own) = own {
                out.extend_from_slice(br#","untrusted_tool_code":"#);
                string(out, &own.code);
            }
            if *code == FailureCode::InDoubt {
                out.extend_from_slice(br#","message":"#);
                string(out, IN_DOUBT);
            }
            out.extend_from_slice(match code.wording() {
                Wording::Fixed | Wording::Own => br#","message":"#.as_slice(),
                Wording::Quoted => br#","untrusted_message":"#,
            });
            string(out, message);
        }
    }
    out.extend_from_slice(b"}}}}");
}

fn write_mode(out: &mut Vec<u8>, mode: &CallMode) {
    match mode {
        // AUTO is the provider's default.
        CallMode::Auto => {}
        CallMode::None => out.extend_from_slice(br#","toolConfig":{"functionCallingConfig":{"mode":"NONE"}}"#),
        CallMode::Any(names) => {
            out.extend_from_slice(br#","toolConfig":{"functionCallingConfig":{"mode":"ANY""#);
            for (n, name) in names.iter().enumerate() {
                out.extend_from_slice(if n > 0 { b"," } else { br#","allowedFunctionNames":["# });
                string(out, name);
            }
            out.extend_from_slice(if names.is_empty() { b"}}".as_slice() } else { b"]}}" });
        }
    }
}

fn size(content: &Content<'_>) -> usize {
    48 + match content {
        Content::Text(_, text) => text.len(),
        Content::Turn(turn, _) => turn.get().len(),
        Content::Responses(responses) => responses
            .iter()
            .map(|response| {
                let outcome = response
                    .outcome
                    .map_or_else(|failure| failure.message.len(), |data| data.get().len());
                128 + response.name.len() + outcome
            })
            .sum(),
    }
}

fn string(out: &mut Vec<u8>, text: &str) {
    // A string can always be serialized, and writing to a Vec cannot fail.
    let _ = serde_json::to_writer(out, text);
}

#[cfg(test)]
mod tests;

//! The content of one turn, assembled from the parts of one reply, the chunks of a stream, or several hops.
//!
//! What is echoed later must equal what was received: parts in order, each signature on its own part. Streamed text is
//! joined only between neighbors of one kind that contain nothing but text. A signed part, even an empty one, remains
//! separate. Two things are left out because a request with them is rejected: empty parts `{}` and, from streams, empty
//! text without a signature.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::reply;
use super::wire::{self, Content, FunctionCall};
use crate::domain::journal::{self, Part};
use crate::ports::model::ModelEvent;

/// A part of the turn.
#[derive(Debug)]
struct Piece {
    read: Part,
    wire: Wire,
}

#[derive(Debug)]
enum Wire {
    /// As received.
    Verbatim(Box<RawValue>),
    /// Joined text, written again from the parsed text.
    Joined,
}

/// The parts received so far.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    pieces: Vec<Piece>,
    /// The whole content as received, if it can be echoed unchanged.
    whole: Option<Box<RawValue>>,
    /// Why a call in it cannot be executed.
    garbled: Option<&'static str>,
}

impl Pieces {
    /// Adds the content of a unary reply.
    ///
    /// # Errors
    /// Invalid content.
    pub(super) fn take_whole(&mut self, content: &RawValue) -> Result<(), String> {
        let first = self.pieces.is_empty();
        let Content { role, parts } = wire::read(content.get().as_bytes())?;
        let mut echoed = role.as_deref() == Some("model");
        for part in parts.unwrap_or_default() {
            let read: wire::Part<'_> = wire::read(part.get().as_bytes())?;
            echoed &= !read.void;
            self.push(part, read);
        }
        self.whole = (first && echoed).then(|| content.to_owned());
        Ok(())
    }

    /// Adds the content of a chunk. `tell` receives each piece of text and of thoughts.
    ///
    /// # Errors
    /// Invalid content.
    pub(super) fn take_chunk(
        &mut self,
        content: &RawValue,
        mut tell: impl FnMut(ModelEvent<'_>),
    ) -> Result<(), String> {
        self.whole = None;
        for part in wire::read::<Content<'_>>(content.get().as_bytes())?
            .parts
            .unwrap_or_default()
        {
            let read: wire::Part<'_> = wire::read(part.get().as_bytes())?;
            let joinable = !read.tied && read.call.is_none() && read.answered.is_none();
            match (&read.text, joinable) {
                (Some(text), _) if !text.is_empty() => tell(match read.thought {
                    true => ModelEvent::Thought(text),
                    false => ModelEvent::Delta(text),
                }),
                (Some(_), true) => continue,
                _ => {}
            }
            match read.text {
                Some(text) if joinable => self.join(&text, read.thought),
                _ => self.push(part, read),
            }
        }
        Ok(())
    }

    /// Adds the parts of a later hop.
    pub(super) fn append(&mut self, later: Self) {
        if self.pieces.is_empty() {
            *self = later;
            return;
        }
        self.whole = None;
        self.garbled = self.garbled.or(later.garbled);
        self.pieces.extend(later.pieces);
    }

    /// True if no part was received.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Why a call in it cannot be executed, if there is such a call.
    pub(super) fn garbled(&self) -> Option<&'static str> {
        self.garbled
    }

    /// Why it is not an answer: it has no calls and no meaningful text.
    pub(super) fn no_answer(&self) -> Option<&'static str> {
        let is_call = |piece: &Piece| matches!(piece.read, Part::Call(_));
        match self.pieces.iter().any(is_call) {
            true => None,
            false => {
                let why = reply::why(&self.text())?;
                let thought = self.parts().any(|part| matches!(part, Part::Thought(_)));
                Some(if thought {
                    "the answer is empty: the model only thought"
                } else {
                    why
                })
            }
        }
    }

    /// The text for the user.
    pub(super) fn text(&self) -> String {
        self.pieces
            .iter()
            .filter_map(|piece| match &piece.read {
                Part::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    /// The parsed parts.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.pieces.iter().map(|piece| &piece.read)
    }

    /// The content to echo, and the same content parsed.
    ///
    /// # Errors
    /// Never: parsed JSON can always be serialized.
    pub(super) fn finish(self) -> Result<(Arc<RawValue>, Vec<Part>), serde_json::Error> {
        let content = match self.whole {
            Some(whole) => whole,
            None => RawValue::from_string(write(&self.pieces)?)?,
        };
        Ok((
            content.into(),
            self.pieces.into_iter().map(|piece| piece.read).collect(),
        ))
    }

    fn join(&mut self, text: &str, thought: bool) {
        if let Some(Piece {
            read,
            wire: Wire::Joined,
        }) = self.pieces.last_mut()
        {
            match read {
                Part::Text(run) if !thought => return run.push_str(text),
                Part::Thought(run) if thought => return run.push_str(text),
                _ => {}
            }
        }
        let text = text.to_owned();
        self.pieces.push(Piece {
            read: if thought { Part::Thought(text) } else { Part::Text(text) },
            wire: Wire::Joined,
        });
    }

    fn push(&mut self, part: &RawValue, read: wire::Part<'_>) {
        if read.void {
            return;
        }
        let read = if let Some(call) = read.call {
            match call_of(call) {
                Ok(call) => Part::Call(call),
                Err(reason) => {
                    self.garbled = Some(reason);
                    Part::Other
                }
            }
        } else if let Some(answered) = read.answered {
            self.close(&answered);
            Part::Other
        } else {
            match read.text {
                Some(text) if read.thought => Part::Thought(text.into_owned()),
                Some(text) => Part::Text(text.into_owned()),
                None => Part::Other,
            }
        };
        self.pieces.push(Piece {
            read,
            wire: Wire::Verbatim(part.to_owned()),
        });
    }

    /// A call that the provider answered itself must not be executed by gavel.
    fn close(&mut self, answered: &FunctionCall<'_>) {
        let call = self.pieces.iter_mut().find(|piece| match &piece.read {
            Part::Call(call) => {
                answered.name.as_deref() == Some(&call.name)
                    && (answered.id.is_none() || answered.id.as_deref() == call.id.as_deref())
            }
            _ => false,
        });
        if let Some(piece) = call {
            piece.read = Part::Other;
        }
    }
}

/// Parses a complete call.
fn call_of(call: &RawValue) -> Result<journal::FunctionCall, &'static str> {
    let call: FunctionCall<'_> = wire::read(call.get().as_bytes()).map_err(|_| "a function call is not an object")?;
    if call.partial_args.is_some() || call.will_continue == Some(true) {
        return Err("a function call came in pieces, which was not asked for");
    }
    let name = call
        .name
        .filter(|name| !name.is_empty())
        .ok_or("a function call has no name")?;
    let args = match call.args {
        None => RawValue::from_string("{}".to_owned()).map_err(|_| "no JSON")?,
        Some(args) if args.get().starts_with('{') => args.to_owned(),
        Some(_) => return Err("the arguments of a function call are not an object"),
    };
    Ok(journal::FunctionCall {
        id: call.id.filter(|id| !id.is_empty()).map(std::borrow::Cow::into_owned),
        name: name.into_owned(),
        args,
    })
}

fn write(pieces: &[Piece]) -> Result<String, serde_json::Error> {
    let mut out = String::from(r#"{"role":"model","parts":["#);
    for (n, piece) in pieces.iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        match (&piece.wire, &piece.read) {
            (Wire::Verbatim(part), _) => out.push_str(part.get()),
            (Wire::Joined, Part::Thought(text)) => {
                out.push_str(r#"{"text":"#);
                out.push_str(&serde_json::to_string(text)?);
                out.push_str(r#","thought":true}"#);
            }
            (Wire::Joined, Part::Text(text)) => {
                out.push_str(r#"{"text":"#);
                out.push_str(&serde_json::to_string(text)?);
                out.push('}');
            }
            (Wire::Joined, Part::Call(_) | Part::Other) => unreachable!("only text is joined"),
        }
    }
    out.push_str("]}");
    Ok(out)
}

#[cfg(test)]
mod tests;

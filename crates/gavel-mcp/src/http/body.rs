//! Bodies of answers: bounded, and decompressed if necessary.

use std::io::Write;

use bytes::Bytes;
use flate2::write::{MultiGzDecoder, ZlibDecoder};
use futures_util::{Stream, StreamExt, stream};
use reqwest::header::{CONTENT_ENCODING, HeaderMap};

use super::Kind;
use crate::domain::budget::Held;
use crate::source::{NoRoom, Reading};
use gavel_upstream::upstream::{BodyError, Joined, Response};

/// Largest answer that is read, as JSON or as one event.
pub(super) const MAX_ANSWER: usize = 16 * 1024 * 1024;
/// Largest error body that is read.
pub(super) const MAX_ERROR: usize = 64 * 1024;

/// Compressed bytes that are decoded at a time. They expand at most a thousandfold.
const STEP: usize = 4 * 1024;

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyFault {
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
    #[error("the answer broke off: {0}")]
    Broken(#[from] BodyError),
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    #[error(
        "the answer has the `content-encoding` `{0}`, which gavel has not asked for; it reads `gzip` and `deflate`"
    )]
    Encoding(String),
    #[error("the answer is labelled as `{0}` and is not compressed so, or is cut off")]
    Compression(&'static str),
}

/// The body of a response, piece by piece.
pub(super) struct Body {
    response: Response,
    decoder: Option<Decoder>,
    /// Data that was read ahead.
    ahead: Bytes,
    /// Largest decompressed piece.
    max: usize,
}

impl Body {
    /// # Errors
    /// It is compressed in a way that is not read.
    pub(super) fn new(response: Response, max: usize) -> Result<Self, BodyFault> {
        Ok(Self {
            decoder: Decoder::of(response.headers())?,
            response,
            ahead: Bytes::new(),
            max,
        })
    }

    /// The headers of its response.
    pub(super) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The kind of the body, judged by its beginning; `label` is the kind according to its headers. Waits for the first
    /// byte that is not white space, and drops everything before it.
    pub(super) async fn kind(&mut self, label: Kind) -> Result<Kind, BodyFault> {
        let mut dropped = 0;
        while let Some(piece) = self.next().await? {
            let kind = label.begun(&piece);
            if kind != Kind::Empty {
                self.ahead = piece;
                return Ok(kind);
            }
            dropped += piece.len();
            if dropped > self.max {
                return Err(BodyFault::TooLarge(self.max));
            }
        }
        Ok(Kind::Empty)
    }

    async fn next(&mut self) -> Result<Option<Bytes>, BodyFault> {
        if !self.ahead.is_empty() {
            return Ok(Some(std::mem::take(&mut self.ahead)));
        }
        loop {
            let piece = self.response.chunk().await?;
            let Some(decoder) = &mut self.decoder else {
                return Ok(piece);
            };
            match piece {
                None => return decoder.end().map(|()| None),
                Some(piece) => {
                    let piece = decoder.decode(&piece, self.max)?;
                    if !piece.is_empty() {
                        return Ok(Some(piece));
                    }
                }
            }
        }
    }

    /// Is it known, without waiting, that the body has been read completely?
    fn is_read(&self) -> bool {
        self.decoder.is_none() && self.response.is_read()
    }
}

/// Decompresses a body that the server compressed without being asked to.
enum Decoder {
    Gzip(MultiGzDecoder<Vec<u8>>),
    Deflate(ZlibDecoder<Vec<u8>>),
}

impl Decoder {
    fn of(headers: &HeaderMap) -> Result<Option<Self>, BodyFault> {
        let Some(encoding) = headers.get(CONTENT_ENCODING) else {
            return Ok(None);
        };
        match String::from_utf8_lossy(encoding.as_bytes())
            .trim()
            .to_ascii_lowercase()
            .as_str()
        {
            "" | "identity" => Ok(None),
            "gzip" | "x-gzip" => Ok(Some(Self::Gzip(MultiGzDecoder::new(Vec::new())))),
            "deflate" => Ok(Some(Self::Deflate(ZlibDecoder::new(Vec::new())))),
            other => Err(BodyFault::Encoding(other.chars().take(40).collect())),
        }
    }

    fn decode(&mut self, piece: &[u8], max: usize) -> Result<Bytes, BodyFault> {
        for step in piece.chunks(STEP) {
            let decoded = match self {
                Self::Gzip(decoder) => decoder.write_all(step).map(|()| decoder.get_ref().len()),
                Self::Deflate(decoder) => decoder.write_all(step).map(|()| decoder.get_ref().len()),
            };
            match decoded {
                Ok(bytes) if bytes > max => return Err(BodyFault::TooLarge(max)),
                Ok(_) => {}
                Err(_) => return Err(self.fault()),
            }
        }
        // An event must not wait for the next piece.
        let flushed = match self {
            Self::Gzip(decoder) => decoder.flush().map(|()| std::mem::take(decoder.get_mut())),
            Self::Deflate(decoder) => decoder.flush().map(|()| std::mem::take(decoder.get_mut())),
        };
        flushed.map(Bytes::from).map_err(|_| self.fault())
    }

    fn end(&mut self) -> Result<(), BodyFault> {
        let ended = match self {
            Self::Gzip(decoder) => decoder.try_finish(),
            Self::Deflate(decoder) => decoder.try_finish(),
        };
        ended.map_err(|_| self.fault())
    }

    fn fault(&self) -> BodyFault {
        BodyFault::Compression(match self {
            Self::Gzip(_) => "gzip",
            Self::Deflate(_) => "deflate",
        })
    }
}

/// Reads a whole body of at most `max` bytes, and charges it to the answer budget.
pub(super) async fn whole(mut body: Body, max: usize, held: &mut Held<'_>) -> Result<Bytes, BodyFault> {
    let mut joined = Joined::default();
    while let Some(piece) = body.next().await? {
        charge(held, &piece, max)?;
        joined.push(piece);
        if body.is_read() {
            break;
        }
    }
    Ok(joined.into())
}

fn charge(held: &mut Held<'_>, piece: &Bytes, max: usize) -> Result<(), BodyFault> {
    if held.bytes() + piece.len() > max {
        return Err(BodyFault::TooLarge(max));
    }
    Ok(held.add(piece.len()).map_err(NoRoom::from)?)
}

/// The bytes of an event stream. It ends with an error if more than `max` bytes arrive without an event, or if the
/// budget has no room. The reader of the events resets `reading` at each event.
pub(super) fn bounded<'a>(
    body: Body,
    reading: Reading<'a>,
    max: usize,
) -> impl Stream<Item = Result<Bytes, BodyFault>> + Send + Unpin + 'a {
    let pieces = stream::try_unfold(body, async |mut body| {
        let piece = body.next().await?;
        Ok::<_, BodyFault>(piece.map(|piece| (piece, body)))
    });
    pieces
        .map(move |chunk| {
            let chunk = chunk?;
            charge(&mut reading.lock(), &chunk, max)?;
            Ok(chunk)
        })
        .boxed()
}

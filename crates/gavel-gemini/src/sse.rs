//! Splits the bytes of a stream into JSON texts.
//!
//! A stream consists of `data: {…}` lines. A blank line ends each event, with CRLF or LF. Instead of an event there may
//! be bare JSON: an error object in mid-stream, or an array of responses if a proxy dropped `alt=sse`. Bare JSON
//! extends to the end of the stream.

/// One JSON text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// The data of an event.
    Event(&'a [u8]),
    /// JSON outside of any event, up to the end of the stream.
    Bare(&'a [u8]),
}

/// State between two pieces of the body.
#[derive(Debug, Default)]
pub(super) struct Framer {
    /// An incomplete line.
    line: Vec<u8>,
    /// Data lines of the current event.
    data: Vec<u8>,
    bare: bool,
}

impl Framer {
    /// Reads a piece of the body and returns the completed frames in order.
    ///
    /// # Errors
    /// The first error of `each`. The rest is not read.
    pub(super) fn feed<E>(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(Frame<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !self.bare {
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                break;
            };
            let (head, tail) = bytes.split_at(end);
            bytes = tail.get(1..).unwrap_or_default();
            if self.line.is_empty() {
                self.take_line(head, &mut each)?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(head);
                self.take_line(&line, &mut each)?;
                if !self.bare {
                    line.clear();
                    self.line = line;
                }
            }
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Ends the body and returns the remaining frames.
    ///
    /// # Errors
    /// The first error of `each`.
    pub(super) fn end<E>(mut self, mut each: impl FnMut(Frame<'_>) -> Result<(), E>) -> Result<(), E> {
        if !self.bare {
            let line = std::mem::take(&mut self.line);
            self.take_line(&line, &mut each)?;
        }
        // An event without its blank line is returned anyway. Its JSON shows whether it is complete.
        self.take_line(b"", &mut each)?;
        if self.bare {
            each(Frame::Bare(&self.line))?;
        }
        Ok(())
    }

    fn take_line<E>(&mut self, line: &[u8], each: &mut impl FnMut(Frame<'_>) -> Result<(), E>) -> Result<(), E> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        if line.is_empty() {
            if !self.data.is_empty() {
                let data = std::mem::take(&mut self.data);
                if data != b"[DONE]" {
                    each(Frame::Event(&data))?;
                }
                self.data = data;
                self.data.clear();
            }
        } else if let Some(data) = line.strip_prefix(b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        } else if matches!(line.trim_ascii_start().first(), Some(b'{' | b'[')) {
            self.bare = true;
            self.line.extend_from_slice(line);
            self.line.push(b'\n');
        }
        // Comments and the fields event, id and retry are not used.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use proptest::prelude::*;

    fn frames(body: &[u8], step: usize) -> Vec<String> {
        let mut found = Vec::new();
        let mut each = |frame: Frame<'_>| {
            found.push(match frame {
                Frame::Event(data) => format!("event {}", String::from_utf8_lossy(data)),
                Frame::Bare(data) => format!("bare {}", String::from_utf8_lossy(data).trim_end()),
            });
            Ok::<_, Infallible>(())
        };
        let mut framer = Framer::default();
        for piece in body.chunks(step) {
            let Ok(()) = framer.feed(piece, &mut each);
        }
        let Ok(()) = framer.end(&mut each);
        found
    }

    fn same_in_every_cut(body: &[u8], expected: &[&str]) {
        for step in 1..=body.len() {
            assert_eq!(frames(body, step), expected, "cut every {step} bytes");
        }
    }

    #[test]
    fn events_end_with_crlf_or_lf_and_other_fields_are_passed_over() {
        same_in_every_cut(
            b"data: {\"a\":1}\r\n\r\n: ping\nid: 7\nevent: x\ndata:{\"b\":2}\n\n\n\ndata: [DONE]\n\n",
            &["event {\"a\":1}", "event {\"b\":2}"],
        );
    }

    #[test]
    fn data_over_several_lines_is_one_text_and_a_missing_blank_line_loses_nothing() {
        same_in_every_cut(
            b"data: {\"a\":\r\ndata: 1}\r\n\r\ndata: {\"b\":2}",
            &["event {\"a\":\n1}", "event {\"b\":2}"],
        );
    }

    #[test]
    fn bare_json_runs_to_the_end() {
        same_in_every_cut(
            b"data: {\"a\":1}\n\n{\n  \"error\": {\"code\": 499}\n}",
            &["event {\"a\":1}", "bare {\n  \"error\": {\"code\": 499}\n}"],
        );
        same_in_every_cut(b"[{\"a\":1}\n,\n{\"b\":2}]\n", &["bare [{\"a\":1}\n,\n{\"b\":2}]"]);
    }

    proptest! {
        #[test]
        fn the_cuts_do_not_matter(body in proptest::collection::vec(any::<u8>(), 0..200), step in 1_usize..50) {
            prop_assert_eq!(frames(&body, step), frames(&body, body.len().max(1)));
        }
    }
}

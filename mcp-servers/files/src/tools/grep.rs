//! `grep`

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use cap_std::fs::File;
use gavel_mcp_base::{Tool, ToolError};
use globset::GlobMatcher;
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkFinish, SinkMatch};
use regex_syntax::ast::parse::Parser;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pattern;
use crate::budget::{Bounded, Budget};
use crate::error::Code;
use crate::path::{Given, InnerPath};
use crate::root::{Node, Root, open_file};
use crate::server::Files;
use crate::walk::{Enough, walk};

const MAX_MATCHES: usize = 200;
const MAX_LINE_CHARS: usize = 500;
/// Most bytes of a compiled pattern; a larger one is rejected.
const MAX_REGEX_BYTES: usize = 4 * 1024 * 1024;
/// Most bytes of one line in memory; a file with a longer line is skipped.
const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;

const DESCRIPTION: &str = "\
Find lines by a regular expression (Rust syntax: no look-around, no back-references; matched line by \
line) in the files below path, or in the one file that path names. Answers with path, line number and \
line, in the order of paths, at most 200; lines are cut at 500 characters. include narrows by a glob. \
Binary files, links, .git and what .gitignore or .ignore name are left out, and hidden files too \
unless a part of include begins with a dot. To search an ignored or hidden place, name it as path.";

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    /// The regular expression, such as fn \w+_total.
    #[schemars(length(min = 1, max = pattern::MAX_CHARS), extend("x-exact" = true))]
    pattern: String,
    /// The folder or file to search, relative to the folder that is served, without `..`. That folder itself when left
    /// out.
    path: Option<Given>,
    /// Only files that match this glob: by their name, such as *.rs, or with a `/` in it by their path below path, such
    /// as src/**/*.rs.
    #[schemars(length(min = 1, max = pattern::MAX_CHARS), extend("x-exact" = true))]
    include: Option<String>,
    /// true to ignore upper and lower case. false when left out.
    ignore_case: Option<bool>,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
struct Found {
    matches: Vec<Line>,
    /// Binary files, which were skipped.
    binary: usize,
    /// Files and folders that could not be read, or have lines over 4 MiB.
    unreadable: usize,
    /// Present when not everything was looked at: why, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Line {
    path: String,
    /// Its number in the file.
    #[schemars(range(min = 1))]
    line: u64,
    /// The line.
    text: String,
    /// true when the line continues after text.
    #[serde(skip_serializing_if = "super::is_false")]
    cut: bool,
}

pub(super) fn tool() -> Tool<Files> {
    super::tool("grep", "Search in files", DESCRIPTION, Arguments::search)
}

impl Arguments {
    fn search(self, root: &Root, budget: &Budget) -> Result<Found, ToolError> {
        let start = self.path.as_ref().map(Given::parse).transpose()?.unwrap_or_default();
        let include = self.include.as_deref().map(Include::parse).transpose()?;
        let mut search = Search {
            matcher: self.matcher()?,
            searcher: searcher(),
            budget,
            answer: Found::default(),
        };
        let incomplete = match root.node(&start)? {
            Node::File(file, _) => search.only(file, &start),
            Node::Directory(_) => {
                let hidden = self.include.as_deref().is_some_and(pattern::names_hidden);
                let walked = walk(root, &start, hidden, budget, &mut |found| {
                    let below = found.path.strip_prefix(start.as_path()).unwrap_or(found.path);
                    if include.as_ref().is_some_and(|include| !include.takes(below)) {
                        return ControlFlow::Continue(());
                    }
                    match open_file(found.directory, found.name) {
                        Ok(Some((file, _))) => search.file(file, found.path),
                        Ok(None) => ControlFlow::Continue(()),
                        Err(error) => {
                            search.skip(&error);
                            ControlFlow::Continue(())
                        }
                    }
                })?;
                search.answer.unreadable += walked.unreadable;
                walked.incomplete
            }
        };
        search.answer.incomplete = incomplete;
        Ok(search.answer)
    }

    fn matcher(&self) -> Result<RegexMatcher, ToolError> {
        // The builder wraps the pattern before it parses it, and its errors point into the wrapped text. These errors
        // show the pattern as given, with a mark under the place.
        Parser::new()
            .parse(&self.pattern)
            .map_err(|error| not_understood(&error))?;
        RegexMatcherBuilder::new()
            .case_insensitive(self.ignore_case.unwrap_or_default())
            // Without it, `$` would not match a line that ends with a bare newline.
            .multi_line(true)
            .crlf(true)
            .size_limit(MAX_REGEX_BYTES)
            .dfa_size_limit(MAX_REGEX_BYTES)
            .build(&self.pattern)
            .map_err(|error| not_understood(&error))
    }
}

fn not_understood(error: &dyn fmt::Display) -> ToolError {
    ToolError::new(
        Code::InvalidPattern,
        format!("`pattern` is not a supported regular expression: {error}"),
    )
}

fn searcher() -> Searcher {
    SearcherBuilder::new()
        .line_terminator(LineTerminator::crlf())
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(MAX_LINE_BYTES))
        .build()
}

/// The files to search.
struct Include {
    glob: GlobMatcher,
    by_name: bool,
}

impl Include {
    fn parse(pattern: &str) -> Result<Self, ToolError> {
        Ok(Self {
            glob: pattern::glob("include", pattern)?,
            by_name: !pattern.contains('/'),
        })
    }

    fn takes(&self, path: &Path) -> bool {
        let name = path.file_name().map(Path::new).filter(|_| self.by_name);
        self.glob.is_match(name.unwrap_or(path))
    }
}

struct Search<'a> {
    matcher: RegexMatcher,
    searcher: Searcher,
    budget: &'a Budget,
    answer: Found,
}

impl Search<'_> {
    /// Searches one file; returns why the search is incomplete, if it is.
    fn only(&mut self, file: File, path: &InnerPath) -> Option<String> {
        self.file(file, path.as_path()).break_value()
    }

    fn file(&mut self, file: File, path: &Path) -> Enough {
        let mut lines = Lines {
            path: path.display().to_string(),
            room: MAX_MATCHES - self.answer.matches.len(),
            lines: Vec::new(),
            more: false,
            binary: false,
        };
        let reader = Bounded {
            inner: file,
            budget: self.budget,
        };
        let searched = self.searcher.search_reader(&self.matcher, reader, &mut lines);
        // Matches found before a file turned out to be binary or unreadable are not reliable.
        match searched {
            Ok(()) if lines.binary => self.answer.binary += 1,
            Ok(()) => self.answer.matches.append(&mut lines.lines),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return ControlFlow::Break(
                    "Stopped since it took too long. Give path or include, to search less.".to_owned(),
                );
            }
            Err(error) => self.skip(&error),
        }
        if lines.more && !lines.binary {
            return ControlFlow::Break(format!(
                "There are more than {MAX_MATCHES} matches. Give path, include or a narrower pattern."
            ));
        }
        ControlFlow::Continue(())
    }

    /// A file that was removed in the meantime is not counted.
    fn skip(&mut self, error: &io::Error) {
        if error.kind() != io::ErrorKind::NotFound {
            self.answer.unreadable += 1;
        }
    }
}

/// The matches of one file.
struct Lines {
    path: String,
    room: usize,
    lines: Vec<Line>,
    more: bool,
    binary: bool,
}

impl Sink for Lines {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if self.lines.len() == self.room {
            self.more = true;
            return Ok(false);
        }
        let line = String::from_utf8_lossy(found.bytes());
        let line = line.trim_end_matches(['\r', '\n']);
        let text: String = line.chars().take(MAX_LINE_CHARS).collect();
        self.lines.push(Line {
            path: self.path.clone(),
            line: found.line_number().unwrap_or(1),
            cut: text.len() < line.len(),
            text,
        });
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> io::Result<()> {
        self.binary = end.binary_byte_offset().is_some();
        Ok(())
    }
}

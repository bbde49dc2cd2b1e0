//! The source files of a directory as one text, from a tar of it.

use std::collections::BTreeMap;
use std::io::Read;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::io::AsyncRead;
use tokio_util::io::SyncIoBridge;

/// The longest text, in bytes.
pub(crate) const TEXT: usize = 200 * 1024;
/// The largest file that is shown, in bytes.
const FILE: u64 = 64 * 1024;
/// How much of the tar is read, in bytes.
const ARCHIVE: u64 = 256 * 1024 * 1024;
/// How many entries of the tar are read.
const ENTRIES: usize = 100_000;
/// How much of the files is kept until it is known which of them are ignored, in bytes.
const KEPT: usize = 16 * 1024 * 1024;
/// How many files are listed as skipped.
const SKIPPED: usize = 500;

/// The text, and what is not in it.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// Blocks of `=== path (bytes)` and the file's content.
    pub(crate) text: String,
    /// How many files the text has.
    pub(crate) count: usize,
    pub(crate) skipped: Vec<Skipped>,
    /// Whether there are more files than the text and the list of the skipped ones have.
    pub(crate) is_truncated: bool,
}

// A file that is not shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Skipped {
    pub(crate) path: String,
    pub(crate) bytes: u64,
    #[schemars(extend("enum" = ["binary", "too_large"]))]
    pub(crate) why: &'static str,
}

/// A file of the tar.
#[derive(Debug)]
struct File {
    bytes: u64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Text(String),
    Skipped(&'static str),
    /// There was no room to keep it.
    Unread,
}

/// Reads a tar whose entries are below one directory, and makes a text of it.
pub(crate) async fn read(archive: impl AsyncRead + Send + 'static) -> std::io::Result<Sources> {
    let bridge = SyncIoBridge::new(Box::pin(archive));
    let read = tokio::task::spawn_blocking(move || sources(bridge.take(ARCHIVE)));
    read.await.map_err(std::io::Error::other)?
}

fn sources(archive: std::io::Take<impl Read>) -> std::io::Result<Sources> {
    let mut tar = tar::Archive::new(archive);
    let mut ignores = Ignores::default();
    let mut files = BTreeMap::new();
    let (mut kept, mut is_truncated) = (0, false);
    for (number, entry) in tar.entries()?.enumerate() {
        if number >= ENTRIES {
            is_truncated = true;
            break;
        }
        let mut entry = match entry {
            Ok(entry) => entry,
            // The limit was reached within the header of an entry.
            Err(_) if number > 0 => {
                is_truncated = true;
                break;
            }
            Err(error) => return Err(error),
        };
        let Some(path) = inner_path(&entry.path_bytes()) else {
            continue;
        };
        let is_file = entry.header().entry_type().is_file();
        if !is_file || path.split('/').any(|part| part == ".git") {
            continue;
        }
        let bytes = entry.size();
        let is_rules = path == ".gitignore" || path.ends_with("/.gitignore");
        // The rules of a directory come before most of its files. What came earlier is sorted out in the end.
        if !is_rules && ignores.exclude(&path) {
            continue;
        }
        let content = match content(&mut entry, bytes, kept) {
            Ok(content) => content,
            Err(_) => {
                is_truncated = true;
                break;
            }
        };
        if let Content::Text(text) = &content {
            kept += text.len();
            if is_rules {
                ignores.add(&path, text);
            }
        }
        files.insert(path, File { bytes, content });
    }
    files.retain(|path, _| !ignores.exclude(path));
    let mut sources = text(files);
    sources.is_truncated |= is_truncated;
    Ok(sources)
}

/// The path below the directory; `None` for the directory itself and for what is not below it.
fn inner_path(path: &[u8]) -> Option<String> {
    let path = String::from_utf8_lossy(path);
    let mut parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    // The first part is the directory's own name.
    parts.next()?;
    let parts: Vec<_> = parts.collect();
    let is_inside = !parts.is_empty() && !parts.contains(&"..");
    is_inside.then(|| parts.join("/"))
}

fn content(entry: &mut impl Read, bytes: u64, kept: usize) -> std::io::Result<Content> {
    if bytes > FILE {
        return Ok(Content::Skipped("too_large"));
    }
    if kept as u64 + bytes > KEPT as u64 {
        return Ok(Content::Unread);
    }
    let mut content = Vec::new();
    entry.read_to_end(&mut content)?;
    if content.len() as u64 != bytes {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let text = String::from_utf8(content).ok().filter(|text| !text.contains('\0'));
    Ok(text.map_or(Content::Skipped("binary"), Content::Text))
}

fn text(files: BTreeMap<String, File>) -> Sources {
    let mut sources = Sources::default();
    for (path, File { bytes, content }) in files {
        match content {
            Content::Text(content) => {
                let end = if content.is_empty() || content.ends_with('\n') {
                    ""
                } else {
                    "\n"
                };
                let block = format!("=== {path} ({bytes} bytes)\n{content}{end}");
                if sources.text.len() + block.len() > TEXT {
                    sources.is_truncated = true;
                    continue;
                }
                sources.text.push_str(&block);
                sources.count += 1;
            }
            Content::Skipped(why) if sources.skipped.len() < SKIPPED => {
                sources.skipped.push(Skipped { path, bytes, why });
            }
            Content::Skipped(_) | Content::Unread => sources.is_truncated = true,
        }
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, path, *content).expect("appended");
        }
        let mut link = tar::Header::new_gnu();
        link.set_entry_type(tar::EntryType::Symlink);
        link.set_size(0);
        tar.append_link(&mut link, "work/link", "/proc/self/environ")
            .expect("appended");
        tar.into_inner().expect("a tar")
    }

    fn read(archive: &[u8]) -> Sources {
        sources(archive.take(ARCHIVE)).expect("a tar")
    }

    #[test]
    fn files_become_blocks_in_the_order_of_their_paths() {
        let sources = read(&tar(&[
            ("work/src/b.rs", b"b"),
            ("work/a.txt", b"one\n"),
            ("work/.git/config", b"no"),
            ("work/sub/.git/config", b"no"),
            ("work/logo.png", b"\x89PNG\0"),
            ("work/big.txt", &[b'x'; 70_000]),
        ]));
        assert_eq!(sources.text, "=== a.txt (4 bytes)\none\n=== src/b.rs (1 bytes)\nb\n");
        assert_eq!(sources.count, 2);
        let skipped: Vec<_> = sources.skipped.iter().map(|file| (&*file.path, file.why)).collect();
        assert_eq!(skipped, [("big.txt", "too_large"), ("logo.png", "binary")]);
        assert!(!sources.is_truncated);
    }

    #[test]
    fn what_gitignore_excludes_is_left_out_wherever_it_comes_in_the_tar() {
        let sources = read(&tar(&[
            ("work/!early.log", b"x"),
            ("work/.gitignore", b"*.log\n/target/\n"),
            ("work/sub/.gitignore", b"!keep.log\n"),
            ("work/sub/keep.log", b"k"),
            ("work/sub/other.log", b"x"),
            ("work/sub/target/y", b"y"),
            ("work/target/x", b"x"),
        ]));
        assert!(sources.text.contains("sub/keep.log") && sources.text.contains("sub/target/y"));
        assert!(
            !sources.text.contains("other.log") && !sources.text.contains("=== target"),
            "{}",
            sources.text
        );
        assert!(!sources.text.contains("early"), "{}", sources.text);
    }

    #[test]
    fn a_text_that_is_too_long_leaves_files_out_and_says_so() {
        let content = vec![b'x'; 60_000];
        let files: Vec<_> = ["work/a", "work/b", "work/c", "work/d"]
            .map(|path| (path, content.as_slice()))
            .into();
        let sources = read(&tar(&files));
        assert_eq!(sources.count, 3);
        assert!(sources.is_truncated && sources.text.len() <= TEXT);
    }

    #[test]
    fn a_tar_that_ends_early_is_truncated() {
        let whole = tar(&[("work/a", b"a"), ("work/b", &[b'b'; 2000])]);
        let sources = read(&whole[..1024 + 512 + 100]);
        assert!(sources.is_truncated);
        assert_eq!(sources.count, 1);
    }
}

/// The rules of each directory that has any.
#[derive(Debug, Default)]
struct Ignores(BTreeMap<String, Gitignore>);

impl Ignores {
    /// Takes up the rules of the file at this path.
    fn add(&mut self, path: &str, text: &str) {
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        let mut builder = GitignoreBuilder::new(format!("/{directory}"));
        for line in text.lines() {
            // As in git, a line that is no rule has no effect.
            builder.add_line(None, line).ok();
        }
        if let Ok(rules) = builder.build() {
            self.0.insert(directory.to_owned(), rules);
        }
    }

    /// Whether a file is excluded, by a rule for itself or for a directory above it.
    fn exclude(&self, path: &str) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let ends = path.match_indices('/').map(|(end, _)| (end, true));
        ends.chain([(path.len(), false)])
            .any(|(end, is_directory)| self.exclude_itself(&path[..end], is_directory))
    }

    /// The rules of the nearest directory come first.
    fn exclude_itself(&self, path: &str, is_directory: bool) -> bool {
        let mut directory = path;
        while !directory.is_empty() {
            directory = directory.rsplit_once('/').map_or("", |(above, _)| above);
            if let Some(rules) = self.0.get(directory) {
                let found = rules.matched(format!("/{path}"), is_directory);
                if !found.is_none() {
                    return found.is_ignore();
                }
            }
        }
        false
    }
}

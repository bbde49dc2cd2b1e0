//! `getFileContents`

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gavel_mcp_base::{Fault, Kind, Tool, ToolError, missing};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Service;
use super::{MAX_REF, Repo, path, reference};
use crate::call::Call;
use crate::error::{Code, unavailable};
use crate::github::GitHub;

/// The largest file that is returned, in bytes.
const MAX: u64 = 256 << 10;

const ABOUT: &str = "\
Read one text file of a repository, at most 256 KiB of UTF-8. file is null when there is no such file. Directories, binary \
files and larger files are errors: is_directory, not_text, too_large.";

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    #[serde(flatten)]
    repo: Repo,
    /// The file, relative to the repository's root, such as src/main.rs.
    #[schemars(extend("x-exact" = true))]
    path: String,
    /// A branch, tag or commit. The default branch when left out.
    #[schemars(length(min = 1, max = MAX_REF))]
    r#ref: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Read {
    /// null when there is no such file.
    file: Option<File>,
}

#[derive(Serialize, JsonSchema)]
struct File {
    path: String,
    /// The id of the content.
    sha: String,
    /// In bytes.
    size: u64,
    content: String,
}

pub(super) fn tool() -> Tool<Service> {
    super::tool("getFileContents", "Read a file", ABOUT, Kind::Reads, read)
}

#[derive(Debug, Deserialize)]
struct WireFile {
    r#type: String,
    path: String,
    sha: String,
    size: u64,
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    encoding: Option<String>,
}

async fn read(github: Arc<GitHub>, arguments: Arguments, call: Call) -> Result<Read, Fault> {
    let repo = arguments.repo.checked()?;
    let path = path(&arguments.path)?.ok_or_else(|| missing("path"))?;
    let segments: Vec<_> = ["contents"]
        .into_iter()
        .chain(path.iter().map(String::as_str))
        .collect();
    let mut url = repo.url(&github, &segments);
    if let Some(name) = arguments.r#ref {
        url.query_pairs_mut().append_pair("ref", &reference("ref", name)?);
    }
    // A directory is a list.
    let found: Option<Value> = github.find(&url, call.deadline, "The file").await?;
    let file = match found {
        None => return Ok(Read { file: None }),
        Some(Value::Array(_)) => {
            let words = "This is a directory. getRepositoryTree lists what is in it.";
            return Err(ToolError::new(Code::IsDirectory, words).into());
        }
        Some(file) => serde_json::from_value::<WireFile>(file).map_err(|_| unavailable())?,
    };
    let content = text(&file)?;
    let WireFile { path, sha, size, .. } = file;
    Ok(Read {
        file: Some(File {
            path,
            sha,
            size,
            content,
        }),
    })
}

fn text(file: &WireFile) -> Result<String, ToolError> {
    if file.r#type != "file" {
        let words = format!("This is a {}, not a text file.", file.r#type.escape_debug());
        return Err(ToolError::new(Code::NotText, words));
    }
    if file.size > MAX {
        let words = format!("The file has {} bytes; at most {MAX} are returned.", file.size);
        return Err(ToolError::new(Code::TooLarge, words)
            .with("size", file.size)
            .with("max", MAX));
    }
    let encoded = file
        .content
        .as_deref()
        .filter(|_| file.encoding.as_deref() == Some("base64"));
    // The lines of base64 are wrapped.
    let encoded: String = encoded.ok_or_else(unavailable)?.split_ascii_whitespace().collect();
    let bytes = STANDARD.decode(encoded).map_err(|_| unavailable())?;
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    text.ok_or_else(|| ToolError::new(Code::NotText, "The file is not UTF-8 text."))
}

//! `getFileContents`

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gavel_mcp_base::{Answer, Arguments, ToolError, missing};
use rmcp::model::{JsonObject, Tool};
use serde::Deserialize;
use serde_json::{Value, json};

use super::schema::{self, Kind, object};
use super::target::{Repo, path, reference};
use crate::call::Call;
use crate::error::{Code, unavailable};
use crate::github::GitHub;

pub(super) const NAME: &str = "getFileContents";

/// The largest file that is returned, in bytes.
const MAX: u64 = 256 << 10;

const ABOUT: &str = "\
Read one text file of a repository, at most 256 KiB of UTF-8. file is null when there is no such file. Directories, binary \
files and larger files are errors: is_directory, not_text, too_large.";

pub(super) fn tool() -> Tool {
    let arguments = schema::of_repository(json!({
        "path": schema::text("The file, relative to the repository's root, such as src/main.rs."),
        "ref": schema::text("A branch, tag or commit. The default branch when left out.")
    }));
    let file = object(json!({
        "path": { "type": "string" },
        "sha": { "type": "string", "description": "The id of the content." },
        "size": { "type": "integer", "description": "In bytes." },
        "content": { "type": "string" }
    }));
    schema::tool(
        NAME,
        "Read a file",
        ABOUT,
        Kind::Reads,
        (arguments, &["owner", "repo", "path"]),
        &[("file", schema::nullable(file, "null when there is no such file."))],
    )
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

pub(super) async fn carry_out(
    arguments: Option<JsonObject>,
    github: &GitHub,
    call: &Call,
) -> Result<Answer, ToolError> {
    let arguments = Arguments::new(arguments, &["owner", "repo", "path", "ref"])?;
    let repo = Repo::parse(&arguments)?;
    let path = path(&arguments)?.ok_or_else(|| missing("path"))?;
    let segments: Vec<_> = ["contents"]
        .into_iter()
        .chain(path.iter().map(String::as_str))
        .collect();
    let mut url = repo.url(github, &segments);
    if let Some(reference) = reference(&arguments, "ref")? {
        url.query_pairs_mut().append_pair("ref", &reference);
    }
    // A directory is a list.
    let found: Option<Value> = github.find(&url, call.deadline, "The file").await?;
    let file = match found {
        None => return Ok(Answer::of(&json!({ "file": null }))),
        Some(Value::Array(_)) => {
            let words = "This is a directory. getRepositoryTree lists what is in it.";
            return Err(ToolError::new(Code::IsDirectory, words));
        }
        Some(file) => serde_json::from_value::<WireFile>(file).map_err(|_| unavailable())?,
    };
    let size = file.size;
    let content = text(&file)?;
    Ok(Answer::of(&json!({
        "file": { "path": file.path, "sha": file.sha, "size": size, "content": content }
    })))
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

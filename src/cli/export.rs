//! `gavel export`: all rows of a log, in a file for each day or on standard output.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use chrono::{DateTime, Utc};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::{HumanBytes, ProgressBar};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::api::exports::{ExportFormat, ExportManifest, ExportSource};
use crate::cli::client::{Refused, parameters};
use crate::cli::exit::{Exit, Usage};
use crate::cli::gavel::{Gavel, Talk, Work};
use crate::cli::interrupt::or_stopped;
use crate::cli::list::since;
use crate::cli::output::{self, count};
use crate::domain::ids::ExportId;
use crate::domain::time::Timestamp;

/// Options of `gavel export`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Args {
    /// The log
    #[arg(value_name = "LOG", value_parser = named(ExportSource::WORDS, ExportSource::parse))]
    source: ExportSource,
    /// Rows from this time on: a date, a time, or a length before now such as 30d; in files from the beginning of that day
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: i64,
    /// Rows before this time [default: now]
    #[arg(long, value_name = "TIME", value_parser = since)]
    until: Option<i64>,
    /// The format
    #[arg(long, default_value = "parquet", value_parser = named(ExportFormat::WORDS, ExportFormat::parse))]
    format: ExportFormat,
    /// A directory, which gets a file for each day in UTC, such as decisions-2026-11-24.parquet; or - for standard output
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Keep the days that are in the directory and whole, and replace the others
    #[arg(long)]
    resume: bool,
    /// Only matching rows, as in the command that lists them
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// Only these columns, separated by commas [default: all without texts]
    #[arg(long, value_name = "NAMES")]
    fields: Option<String>,
    /// With the columns that have texts of users, models and tools
    #[arg(long, conflicts_with = "fields")]
    content: bool,
    /// Leave texts of CSV as they are, also where a spreadsheet would take them for formulas
    #[arg(long)]
    raw: bool,
}

const EXAMPLES: &str = "\
Beside each file is its manifest, such as decisions-2026-11-24.parquet.json: what was asked for, rows, bytes and digest. A \
file gets its name when it is whole. The audit log has an entry for each file.

Exit status: 0 whole, 1 the export broke or the digest does not match, 2 invalid usage.

Examples:
  gavel export decisions --since 30d --out logs
  gavel export decisions --since 30d --out logs --resume
  gavel export tool-invocations --since 2026-11-01 --until 2026-12-01 --format csv --out - > calls.csv
  gavel export decisions --since 7d --filter 'outcome_category = \"ERROR:*\"' --content --format ndjson --out -";

fn named<T: Clone + Send + Sync + 'static>(
    names: &'static [&'static str],
    parse: fn(&str) -> Option<T>,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(names).try_map(move |name| parse(&name).ok_or("it has another name"))
}

const STANDARD_OUTPUT: &str = "-";
const DAY_US: i64 = 24 * 3600 * 1_000_000;
/// A server that sends nothing for this long counts as dead. It reads several pages before it sends a part of Parquet.
const SILENCE: Duration = Duration::from_secs(120);
/// The header with the id of an export.
const EXPORT: &str = "x-gavel-export";

/// A manifest as it lies beside a file.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// What was asked for: a later export that asks for the same may keep the file.
    query: Value,
    #[serde(flatten)]
    manifest: ExportManifest,
}

impl Talk for Args {
    const WORK: Work = Work::Export;

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        or_stopped(async {
            let until = self.until.unwrap_or_else(|| Utc::now().timestamp_micros());
            if self.since >= until {
                return Err(Usage("--since is not before --until".to_owned()).into());
            }
            match self.out.as_os_str() == STANDARD_OUTPUT {
                true => self.stream(gavel, until).await,
                false => self.fill(gavel, until).await,
            }
        })
        .await
    }
}

impl Args {
    /// The parameters of a request for rows from one time until another.
    fn query(&self, from: i64, until: i64) -> Vec<(&'static str, String)> {
        let flag = |yes: bool| yes.then(|| "true".to_owned());
        parameters([
            ("format", Some(self.format.to_string())),
            ("from", Some(Timestamp(from).to_string())),
            ("to", Some(Timestamp(until).to_string())),
            ("filter", self.filter.clone()),
            ("fields", self.fields.clone()),
            ("content", flag(self.content)),
            ("raw", flag(self.raw)),
        ])
    }

    async fn stream(&self, gavel: &Gavel, until: i64) -> anyhow::Result<Exit> {
        if self.resume {
            return Err(Usage("--resume needs a directory in --out".to_owned()).into());
        }
        if output::answers_are_shown() {
            let words = "--out - is for a file or another program, and this is a terminal: add > FILE";
            return Err(Usage(words.to_owned()).into());
        }
        let bar = output::progress(true, None, "{spinner} {elapsed} {msg}");
        let taken = self
            .take(gavel, &self.query(self.since, until), &bar, output::bytes)
            .await?;
        bar.finish_and_clear();
        output::note(&count(taken.rows, "row"));
        Ok(Exit::Done)
    }

    async fn fill(&self, gavel: &Gavel, until: i64) -> anyhow::Result<Exit> {
        let shown = self.out.display();
        fs::create_dir_all(&self.out).with_context(|| format!("--out {shown} cannot be created"))?;
        let first = self.since.div_euclid(DAY_US);
        let days = first..=(until - 1).div_euclid(DAY_US);
        let files: Vec<_> = days
            .map(|day| {
                let (from, end) = (day * DAY_US, ((day + 1) * DAY_US).min(until));
                let date = DateTime::<Utc>::from_timestamp_micros(from).unwrap_or_default();
                let name = format!("{}-{}.{}", self.source, date.format("%Y-%m-%d"), self.format);
                (self.out.join(name), self.query(from, end))
            })
            .collect();
        if let Some((path, _)) = files.iter().find(|(path, _)| !self.resume && path.exists()) {
            let words = "already exists: --resume keeps what is whole and replaces the rest, or name another directory";
            return Err(Usage(format!("{} {words}", path.display())).into());
        }
        let bar = output::progress(true, Some(files.len() as u64), "{bar:40} {pos} of {len} days, {msg}");
        let (mut rows, mut kept) = (0, 0);
        for (path, query) in &files {
            let found = if self.resume { whole(path, query)? } else { None };
            rows += match found {
                Some(found) => {
                    kept += 1;
                    found.rows
                }
                None => self.day(gavel, path, query, &bar).await?.rows,
            };
            bar.inc(1);
        }
        bar.finish_and_clear();
        let kept = match kept {
            0 => String::new(),
            _ => format!(", {kept} of them from before"),
        };
        let files = count(files.len() as u64, "file");
        output::note(&format!("{} in {files}{kept} in {shown}", count(rows, "row")));
        Ok(Exit::Done)
    }

    /// Writes a file, and its manifest beside it. Each has its name once it is whole.
    async fn day(
        &self,
        gavel: &Gavel,
        path: &Path,
        query: &[(&'static str, String)],
        bar: &ProgressBar,
    ) -> anyhow::Result<ExportManifest> {
        let cannot = || format!("{} cannot be written", path.display());
        let mut file = self.part().with_context(cannot)?;
        let taken = self.take(gavel, query, bar, |piece| file.write_all(piece).with_context(cannot));
        // A refusal says itself what to do, and keeps its exit status.
        let manifest = taken.await.map_err(|error| match Refused::in_error(&error) {
            Some(_) => error,
            None => anyhow!("{error:#}\n  whole days are kept: the same command with --resume continues"),
        })?;
        // The manifest of an earlier file must not be taken for that of this one.
        let beside = beside(path);
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).with_context(cannot),
            _ => {}
        }
        file.as_file().sync_all().with_context(cannot)?;
        file.persist(path).with_context(cannot)?;
        let kept = Kept {
            query: json!(query),
            manifest,
        };
        let mut file = self.part().with_context(cannot)?;
        serde_json::to_writer_pretty(&mut file, &kept)?;
        file.persist(&beside)
            .with_context(|| format!("{} cannot be written", beside.display()))?;
        Ok(kept.manifest)
    }

    /// A file of the directory that is removed unless it gets a name.
    fn part(&self) -> std::io::Result<tempfile::NamedTempFile> {
        tempfile::Builder::new().prefix(".gavel-export-").tempfile_in(&self.out)
    }

    /// Requests an export, hands its bytes over, and compares them with its manifest.
    async fn take(
        &self,
        gavel: &Gavel,
        query: &[(&'static str, String)],
        bar: &ProgressBar,
        mut hand_over: impl FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<ExportManifest> {
        let mut response = gavel.download(&format!("v1/export/{}", self.source), query).await?;
        let id = response
            .headers()
            .get(EXPORT)
            .and_then(|id| ExportId::parse(id.to_str().ok()?));
        let id = id.ok_or_else(|| anyhow!("{} answered with no export; check that --server names a gavel", **gavel))?;
        let (mut hash, mut bytes) = (Sha256::new(), 0_u64);
        loop {
            let piece = tokio::time::timeout(SILENCE, response.chunk());
            let broke = || {
                format!(
                    "the export broke after {}: it is not whole, and the log of {} says why",
                    HumanBytes(bytes),
                    **gavel
                )
            };
            let Some(piece) = piece
                .await
                .map_err(anyhow::Error::from)
                .and_then(|piece| Ok(piece.map_err(reqwest::Error::without_url)?))
                .with_context(broke)?
            else {
                break;
            };
            hash.update(&piece);
            bytes += piece.len() as u64;
            hand_over(&piece)?;
            bar.set_message(HumanBytes(bytes).to_string());
        }
        let manifest: ExportManifest = gavel.get(&format!("v1/exports/{id}")).await?;
        let sha256 = hex::encode(hash.finalize());
        if !manifest.complete || (manifest.bytes, &manifest.sha256) != (bytes, &sha256) {
            bail!(
                "received {bytes} bytes with the SHA-256 {sha256}, and the manifest of the export says {} with {}: what was \
                 received is not what was sent; check the proxies between, and export again",
                manifest.bytes,
                manifest.sha256
            );
        }
        Ok(manifest)
    }
}

/// Where the manifest of a file is.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".json");
    name.into()
}

/// The manifest of a file that is there, if it is of this query and matches the file.
fn whole(path: &Path, query: &[(&'static str, String)]) -> anyhow::Result<Option<ExportManifest>> {
    let (Ok(kept), Ok(mut file)) = (fs::read(beside(path)), fs::File::open(path)) else {
        return Ok(None);
    };
    let Ok(Kept { query: asked, manifest }) = serde_json::from_slice(&kept) else {
        return Ok(None);
    };
    let mut hash = Sha256::new();
    let bytes = std::io::copy(&mut file, &mut HashWriter(&mut hash))
        .with_context(|| format!("{} cannot be read", path.display()))?;
    let is_whole = manifest.complete && manifest.bytes == bytes && manifest.sha256 == hex::encode(hash.finalize());
    Ok((is_whole && asked == json!(query)).then_some(manifest))
}

struct HashWriter<'a>(&'a mut Sha256);

impl Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

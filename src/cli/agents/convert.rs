//! `gavel agents convert`: the same definition in another form.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;

use super::{count, read_some, render_error};
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::domain::definition::{Definition, Form};

/// Options of `gavel agents convert`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The definition; - is standard input
    file: PathBuf,
    /// The form to write
    #[arg(long, value_enum)]
    to: FormName,
    /// The form to read, if the file name does not show it
    #[arg(long, value_enum)]
    from: Option<FormName>,
    /// The file to write, which must not exist yet; without it, standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long, requires = "output")]
    force: bool,
}

const EXAMPLES: &str = "\
Examples:
  gavel agents convert agents/reviewer.md --to yaml
  gavel agents convert agents/reviewer.md --to proto -o reviewer.binpb
  gavel agents convert - --from json --to md <reviewer.json

Every form holds the same content: converted back, a definition has its original hash. It is written in the portable \
spelling: defaults that matter to other readers are added (inputConfig, query, approval). Comments are not kept. Names \
under inputs and in schemas are sorted. The definition is checked on its own; `gavel agents validate` also \
checks the schemas and agents that it names.

Exit status 2 if the definition is invalid, or FILE already exists or has the ending of another form.";

/// A form, as named by an option.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormName {
    Json,
    Yaml,
    Md,
    Proto,
}

impl FormName {
    fn form(self) -> Form {
        match self {
            Self::Json => Form::Json,
            Self::Yaml => Form::Yaml,
            Self::Md => Form::Markdown,
            Self::Proto => Form::Proto,
        }
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let is_standard_input = args.file == Path::new("-");
    let Some(from) = args.from.map(FormName::form).or_else(|| Form::of_path(&args.file)) else {
        output::note("error: the file name does not show the form; give it with --from");
        return Ok(Exit::Invalid);
    };
    if let Some(invalid) = args.output.as_deref().and_then(|file| unfit(file, args.to.form())) {
        output::note(&format!("error: {invalid}"));
        return Ok(Exit::Invalid);
    }
    let place = args.file.display().to_string();
    let bytes = read_some(&args.file).with_context(|| format!("{place} cannot be read"))?;
    let place = if is_standard_input {
        "standard input".to_owned()
    } else {
        place
    };
    let definition = match Definition::read(&bytes, from, &place) {
        Ok(definition) => definition,
        Err(errors) => {
            for error in &errors {
                output::note(&render_error(error));
            }
            output::note(&format!(
                "error: {place} is not converted: {}",
                count(errors.len(), "error")
            ));
            return Ok(Exit::Invalid);
        }
    };
    let written = definition.write(args.to.form());
    match &args.output {
        Some(file) => match write(file, &written, args.force) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let file = file.display();
                output::note(&format!("error: {file} already exists; --force overwrites it"));
                return Ok(Exit::Invalid);
            }
            done => done.with_context(|| format!("{} cannot be written", file.display()))?,
        },
        None if args.to.form() == Form::Proto && output::answers_are_shown() => {
            output::note("error: protobuf is binary and cannot be shown on a terminal; name a file with -o");
            return Ok(Exit::Invalid);
        }
        None => output::file(&written)?,
    }
    Ok(Exit::Done)
}

/// Readers would misread a file whose ending names another form than its content.
fn unfit(file: &Path, form: Form) -> Option<String> {
    let ending = Form::of_path(file).filter(|ending| *ending != form)?;
    Some(format!(
        "{} would contain {}, but its ending means {}",
        file.display(),
        form.as_str(),
        ending.as_str()
    ))
}

fn write(file: &Path, bytes: &[u8], force: bool) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    if force {
        options.write(true).create(true).truncate(true);
    } else {
        options.write(true).create_new(true);
    }
    options.open(file)?.write_all(bytes)
}

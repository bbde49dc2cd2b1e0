//! The templates of planning sessions: built in, or from the directory `planning.templates`.
//!
//! Each has a closed list of placeholders. One that is unknown would never be filled, and without one that is required
//! the model would not see what its answer depends on; both stop the start.

use crate::domain::definition::ReadError;
use crate::domain::templates::{Template, TemplateError};
use crate::engine::strategy::plan::PhaseTemplates;

/// The longest template, in bytes: every run stores those that it uses.
const MOST_BYTES: usize = 16 * 1024;

/// The templates of planning sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanningTemplates {
    /// The planner's first message for a new session.
    pub plan: String,
    /// The planner's first message for a change of the plan.
    pub refine: String,
    /// Those of the phases of a step.
    pub phases: PhaseTemplates,
}

/// A file that replaces a built-in template.
#[derive(Clone, Debug)]
pub struct TemplateFile {
    /// Its name, such as `reason.md`.
    pub name: String,
    /// Its path, for errors.
    pub place: String,
    /// Its text.
    pub text: String,
}

/// A template: its file, the built-in text, and its placeholders.
struct Kind {
    file: &'static str,
    built_in: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
}

/// What code has read of the repository, by the names of [`opening`](super::opening::opening).
const PLAN: Kind = Kind {
    file: "plan.md",
    built_in: include_str!("../../../../../templates/planning/plan.md"),
    required: &["goal", "tools"],
    optional: &[
        "repo_url",
        "deadline",
        "repository",
        "tree",
        "agent_md",
        "agents_md",
        "readme",
    ],
};
const REFINE: Kind = Kind {
    file: "refine.md",
    built_in: include_str!("../../../../../templates/planning/refine.md"),
    required: &["goal", "tools", "plan", "change"],
    optional: &[
        "feedback",
        "repo_url",
        "deadline",
        "repository",
        "tree",
        "agent_md",
        "agents_md",
        "readme",
    ],
};
/// `time_left` has its unit. `notice` is what the engine has to say about the last answer, often nothing.
const REASON: Kind = Kind {
    file: "reason.md",
    built_in: include_str!("../../../../../templates/planning/reason.md"),
    required: &["time_left", "notice"],
    optional: &["steps_left"],
};
const ACT: Kind = Kind {
    file: "act.md",
    built_in: include_str!("../../../../../templates/planning/act.md"),
    required: &["notice"],
    optional: &[],
};
const REFLECT: Kind = Kind {
    file: "reflect.md",
    built_in: include_str!("../../../../../templates/planning/reflect.md"),
    required: &["step", "notice"],
    optional: &[],
};

const KINDS: [&Kind; 5] = [&PLAN, &REFINE, &REASON, &ACT, &REFLECT];

impl PlanningTemplates {
    /// The built-in templates.
    pub fn built_in() -> Self {
        Self::from(|kind| kind.built_in.to_owned())
    }

    /// The built-in templates, with these files in their place.
    ///
    /// # Errors
    /// All errors of all files, each with its line and what is allowed.
    pub fn of(files: &[TemplateFile]) -> Result<Self, Vec<ReadError>> {
        let errors: Vec<_> = files.iter().flat_map(errors).collect();
        if !errors.is_empty() {
            return Err(errors);
        }
        let given = |kind: &Kind| files.iter().find(|file| file.name == kind.file);
        Ok(Self::from(|kind| {
            given(kind).map_or_else(|| kind.built_in.to_owned(), |file| file.text.clone())
        }))
    }

    fn from(text: impl Fn(&Kind) -> String) -> Self {
        Self {
            plan: text(&PLAN),
            refine: text(&REFINE),
            phases: PhaseTemplates {
                reason: text(&REASON),
                act: text(&ACT),
                reflect: text(&REFLECT),
            },
        }
    }
}

fn errors(file: &TemplateFile) -> Vec<ReadError> {
    let error = |at: Option<usize>, found: String, allowed: String| ReadError {
        file: file.place.clone(),
        line: at.map(|at| line(&file.text, at)),
        field: "template".to_owned(),
        found,
        allowed,
    };
    let Some(kind) = KINDS.into_iter().find(|kind| kind.file == file.name) else {
        let names: Vec<_> = KINDS.iter().map(|kind| kind.file).collect();
        return vec![error(None, format!("{:?}", file.name), names.join(", "))];
    };
    if file.text.len() > MOST_BYTES {
        let found = format!("{} bytes", file.text.len());
        return vec![error(None, found, format!("at most {MOST_BYTES} bytes"))];
    }
    let template = match Template::parse(&file.text) {
        Ok(template) => template,
        Err(TemplateError { at, found, allowed }) => return vec![error(Some(at), found, allowed)],
    };
    let unknown = template.places().filter(|(name, _)| !kind.knows(name));
    let mut errors: Vec<_> = unknown
        .map(|(name, at)| error(Some(at), format!("${{{name}}}"), kind.allowed()))
        .collect();
    let missing = kind
        .required
        .iter()
        .filter(|name| !template.names().any(|found| found == **name));
    errors.extend(missing.map(|name| error(None, format!("no ${{{name}}}"), kind.allowed())));
    errors
}

impl Kind {
    fn knows(&self, name: &str) -> bool {
        self.required.contains(&name) || self.optional.contains(&name)
    }

    fn allowed(&self) -> String {
        let list = |names: &[&str]| {
            names
                .iter()
                .map(|name| format!("${{{name}}}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        match self.optional {
            [] => format!("exactly {}", list(self.required)),
            optional => format!("{} (required), {}", list(self.required), list(optional)),
        }
    }
}

/// The line of a byte offset, from 1.
fn line(text: &str, at: usize) -> u64 {
    let before = text.as_bytes().iter().take(at);
    1 + before.filter(|byte| **byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;

    use super::*;
    use crate::domain::repository::Repository;
    use crate::surfaces::planning::begin::opening;

    fn file(name: &str, text: &str) -> TemplateFile {
        TemplateFile {
            name: name.to_owned(),
            place: format!("templates/{name}"),
            text: text.to_owned(),
        }
    }

    fn refused(name: &str, text: &str) -> Vec<String> {
        let errors = PlanningTemplates::of(&[file(name, text)]).unwrap_err();
        errors.iter().map(ToString::to_string).collect()
    }

    /// P-303: each phase has its own template, and the built-in ones fulfil what is asked of others.
    #[test]
    fn the_built_in_templates_are_valid() {
        let files: Vec<_> = KINDS.iter().map(|kind| file(kind.file, kind.built_in)).collect();
        assert_eq!(PlanningTemplates::of(&files).unwrap(), PlanningTemplates::built_in());
        assert_eq!(PlanningTemplates::of(&[]).unwrap(), PlanningTemplates::built_in());
    }

    /// A placeholder without a value would stop every session: what a template of the planner may name is read or given.
    #[test]
    fn a_template_of_the_planner_may_name_only_what_is_read_or_given() {
        let repository = Repository {
            owner: "acme".to_owned(),
            name: "dates".to_owned(),
        };
        let given = ["goal", "repo_url", "deadline", "tools"];
        for (kind, further) in [(PLAN, &[][..]), (REFINE, &["plan", "feedback", "change"][..])] {
            let opening = opening(&repository, kind.built_in, BTreeMap::new());
            let is_given = |name: &&&str| {
                opening.reads.iter().any(|read| read.name == **name) || given.contains(*name) || further.contains(*name)
            };
            let mut names = kind.required.iter().chain(kind.optional);
            assert_eq!(names.find(|name| !is_given(name)), None, "{}", kind.file);
        }
    }

    #[test]
    fn a_file_replaces_its_template_and_no_other() {
        let own = PlanningTemplates::of(&[file("act.md", "${notice} Act.")]).unwrap();
        let built_in = PlanningTemplates::built_in();
        assert_eq!(own.phases.act, "${notice} Act.");
        assert_eq!((own.phases.reason, own.plan), (built_in.phases.reason, built_in.plan));
    }

    #[test]
    fn an_error_names_its_line_and_what_is_allowed() {
        let unknown = refused("reflect.md", "${notice}\n${step}\n${steps}\n");
        assert_eq!(
            unknown,
            ["templates/reflect.md:3: template: found ${steps}; allowed: exactly ${step}, ${notice}"]
        );
        let missing = refused("reason.md", "Think. ${notice}");
        assert_eq!(
            missing,
            [
                "templates/reason.md: template: found no ${time_left}; allowed: ${time_left}, ${notice} (required), \
                 ${steps_left}"
            ]
        );
        let malformed = refused("act.md", "${notice}\n\n${ x }");
        assert!(malformed[0].starts_with("templates/act.md:3: "), "{malformed:?}");
        let misspelled = refused("reson.md", "${notice}");
        assert!(misspelled[0].ends_with("allowed: plan.md, refine.md, reason.md, act.md, reflect.md"));
        let long = refused("act.md", &format!("${{notice}}{}", "x".repeat(MOST_BYTES)));
        assert!(long[0].contains("at most 16384 bytes"), "{long:?}");
    }
}

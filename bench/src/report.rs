//! Figures beside their targets, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

use crate::load::Outcome;
use crate::machine::Machine;
use crate::stats::median;

/// Cores that other processes may use before the figures count as unreliable.
const NOISE: f64 = 0.2;

/// The target of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    AtMost(f64),
    AtMostTimesBare(f64),
    AtLeastTimesBare(f64),
    /// Reported only.
    None,
}

/// One measured value per pass.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) gavel: Vec<f64>,
    /// Empty if there is nothing to compare with.
    pub(crate) bare: Vec<f64>,
    pub(crate) target: Target,
}

impl Figure {
    fn ratio(&self) -> Option<f64> {
        let bare = median(&self.bare);
        (bare > 0.0).then(|| median(&self.gavel) / bare)
    }

    /// Whether the target is met; a comparison without a bare figure is not.
    fn met(&self) -> Option<bool> {
        match self.target {
            Target::AtMost(most) => Some(median(&self.gavel) <= most),
            Target::AtMostTimesBare(most) => Some(self.ratio().is_some_and(|ratio| ratio <= most)),
            Target::AtLeastTimesBare(least) => Some(self.ratio().is_some_and(|ratio| ratio >= least)),
            Target::None => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "≤ {most}"),
            Self::AtMostTimesBare(most) => write!(f, "≤ {most} × bare"),
            Self::AtLeastTimesBare(least) => write!(f, "≥ {least} × bare"),
            Self::None => Ok(()),
        }
    }
}

/// All measurements.
pub(crate) struct Report {
    machine: Machine,
    quick: bool,
    phases: Vec<(String, Vec<Figure>)>,
    /// The number of errors by kind and server.
    errors: BTreeMap<String, u64>,
    /// The maximum of cores that other processes used during a measurement.
    others: f64,
}

impl Report {
    pub(crate) fn new(machine: Machine, quick: bool) -> Self {
        Self {
            machine,
            quick,
            phases: Vec::new(),
            errors: BTreeMap::new(),
            others: 0.0,
        }
    }

    /// Starts a new phase and prints it at once, because all phases take minutes.
    pub(crate) fn phase(&mut self, name: &str) {
        eprintln!("measuring {name}");
        self.phases.push((name.to_owned(), Vec::new()));
    }

    pub(crate) fn add(&mut self, figure: Figure) {
        if let Some((_, figures)) = self.phases.last_mut() {
            figures.push(figure);
        }
    }

    /// Records the errors of one load, and how much other processes used the machine.
    pub(crate) fn note(&mut self, who: &str, outcome: &Outcome, faults: u64, others: f64) {
        for (kind, times) in &outcome.kinds {
            *self.errors.entry(format!("{who}: {kind}")).or_default() += times;
        }
        if faults > 0 {
            *self
                .errors
                .entry(format!("{who}: a request that a real upstream refuses"))
                .or_default() += faults;
        }
        self.others = self.others.max(others);
    }

    /// Whether every response was valid.
    pub(crate) fn works(&self) -> bool {
        self.errors.is_empty()
    }

    /// Whether every target was met.
    pub(crate) fn all_met(&self) -> bool {
        self.figures().all(|figure| figure.met() != Some(false))
    }

    fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.phases.iter().flat_map(|(_, figures)| figures)
    }

    pub(crate) fn json(&self) -> Value {
        let phases: Vec<_> = self
            .phases
            .iter()
            .map(|(name, figures)| {
                let figures: Vec<_> = figures
                    .iter()
                    .map(|figure| {
                        json!({
                            "what": figure.what, "unit": figure.unit, "target": figure.target.to_string(),
                            "met": figure.met(), "ratio": figure.ratio(),
                            "gavel": {"median": median(&figure.gavel), "passes": figure.gavel},
                            "bare": {"median": median(&figure.bare), "passes": figure.bare},
                        })
                    })
                    .collect();
                json!({"phase": name, "figures": figures})
            })
            .collect();
        json!({
            "machine": self.machine, "quick": self.quick, "others_cores_at_most": self.others,
            "phases": phases, "errors": self.errors, "all_met": self.works() && self.all_met(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        writeln!(
            f,
            "{} × {}, Linux {}, load {} before",
            machine.cpus, machine.cpu_model, machine.kernel, machine.load_before
        )?;
        writeln!(f, "Medians of the passes, with the lowest and the highest.")?;
        for (name, figures) in &self.phases {
            writeln!(f)?;
            line(f, name, "gavel", "bare server", "ratio", "target", "")?;
            for figure in figures {
                let ratio = figure.ratio().map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
                let met = match figure.met() {
                    Some(true) => "met",
                    Some(false) => "MISSED",
                    None => "",
                };
                let what = match figure.unit {
                    "" => format!("  {}", figure.what),
                    unit => format!("  {}, {unit}", figure.what),
                };
                let target = figure.target.to_string();
                line(
                    f,
                    &what,
                    &spread(&figure.gavel),
                    &spread(&figure.bare),
                    &ratio,
                    &target,
                    met,
                )?;
            }
        }
        writeln!(f)?;
        for (error, times) in &self.errors {
            writeln!(f, "error, {times} times: {error}")?;
        }
        if self.others > NOISE {
            writeln!(
                f,
                "Other processes used up to {:.1} cores meanwhile: compare ratios and CPU, distrust times.",
                self.others
            )?;
        }
        if self.quick {
            writeln!(
                f,
                "A quick run: it shows that everything works; the figures are worth little."
            )?;
        }
        Ok(())
    }
}

fn line(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    gavel: &str,
    bare: &str,
    ratio: &str,
    target: &str,
    met: &str,
) -> fmt::Result {
    let line = format!("{what:<58} {gavel:>20} {bare:>20} {ratio:>6}  {target:<12} {met}");
    writeln!(f, "{}", line.trim_end())
}

/// `1.23 (1.1–1.4)`.
fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match values {
        [] => String::new(),
        [one] => short(*one),
        _ => format!("{} ({}–{})", short(median(values)), short(least), short(most)),
    }
}

/// Three significant digits.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || size == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(gavel: &[f64], bare: &[f64], target: Target) -> Figure {
        Figure {
            what: "x".into(),
            unit: "ms",
            gavel: gavel.to_vec(),
            bare: bare.to_vec(),
            target,
        }
    }

    #[test]
    fn a_target_is_measured_by_medians() {
        let ratio = |gavel| figure(&[gavel, 1000.0, 0.0], &[10.0], Target::AtMostTimesBare(1.5)).met();
        assert_eq!(ratio(15.0), Some(true));
        assert_eq!(ratio(15.1), Some(false));
        assert_eq!(figure(&[4.0], &[10.0], Target::AtLeastTimesBare(0.4)).met(), Some(true));
        assert_eq!(
            figure(&[3.9], &[10.0], Target::AtLeastTimesBare(0.4)).met(),
            Some(false)
        );
        assert_eq!(figure(&[301.0], &[], Target::AtMost(300.0)).met(), Some(false));
        assert_eq!(figure(&[1.0], &[], Target::None).met(), None);
    }

    #[test]
    fn a_comparison_with_nothing_is_not_met() {
        assert_eq!(figure(&[1.0], &[], Target::AtMostTimesBare(1.5)).met(), Some(false));
    }
}

//! The runs of a session in the order of their creation, and between which of them persons edited its plan.

use crate::api::planning::Version;
use crate::api::planning::VersionKind;
use crate::domain::ids::{PlanningSessionId, RunId};
use crate::surfaces::StoreFailure;
use crate::surfaces::planning::Planning;

/// Versions per read, each with its whole plan.
const VERSIONS: u32 = 20;

/// A run of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionRun {
    pub(super) id: RunId,
    /// Microseconds since the epoch.
    created_us: i64,
}

impl Planning {
    /// The runs of a session, in the order in which they were created. The last one works for it, or worked last.
    pub(super) async fn runs_of(&self, session: PlanningSessionId) -> Result<Vec<SessionRun>, StoreFailure> {
        let runs = self.sessions.runs(session).await?;
        Ok(runs
            .into_iter()
            .map(|(id, created_us)| SessionRun { id, created_us })
            .collect())
    }

    /// All versions of a plan, in order.
    pub(super) async fn all_versions(&self, session: PlanningSessionId) -> Result<Vec<Version>, StoreFailure> {
        let mut versions: Vec<Version> = Vec::new();
        loop {
            let after = versions.last().map_or(0, |last| last.version);
            let page = self.sessions.versions(session, after, VERSIONS).await?;
            if page.is_empty() {
                return Ok(versions);
            }
            versions.extend(page);
        }
    }
}

/// The version that a run made as a whole; the work on a plan changes it, and makes none.
pub(super) fn made(versions: &[Version], run: RunId) -> Option<&Version> {
    let is_whole = |version: &&Version| matches!(version.kind, VersionKind::Proposed | VersionKind::Refined);
    versions
        .iter()
        .filter(is_whole)
        .find(|version| version.run_id == Some(run))
}

/// The versions that persons made after the run of this index and before the next one, in order.
pub(super) fn edits<'a>(
    runs: &'a [SessionRun],
    versions: &'a [Version],
    index: usize,
) -> impl Iterator<Item = &'a Version> {
    let is_edit = |version: &&Version| version.kind == VersionKind::Edited;
    versions
        .iter()
        .filter(is_edit)
        .filter(move |edit| edited_after(runs, versions, edit) == index)
}

/// The number of the last version before the run of this index; 0 if there was none.
pub(super) fn version_before(runs: &[SessionRun], versions: &[Version], index: usize) -> u32 {
    let earlier = runs.iter().take(index);
    let made = earlier.filter_map(|run| made(versions, run.id));
    let edited = (0..index).flat_map(|index| edits(runs, versions, index));
    made.chain(edited).map(|version| version.version).max().unwrap_or(0)
}

/// The index of the run after which a person edited a version. A run that made a version is before or after it by its
/// number, any other run by the time.
fn edited_after(runs: &[SessionRun], versions: &[Version], edit: &Version) -> usize {
    let is_before = |run: &&SessionRun| match made(versions, run.id) {
        Some(made) => made.version < edit.version,
        None => run.created_us <= edit.at.0,
    };
    runs.iter().take_while(is_before).count().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;

    fn run(created_us: i64) -> SessionRun {
        SessionRun {
            id: RunId::new(),
            created_us,
        }
    }

    fn version(version: u32, at_us: i64, kind: VersionKind, run: Option<RunId>) -> Version {
        Version {
            version,
            at: Timestamp(at_us),
            by: "ann".into(),
            kind,
            why: "why".into(),
            changes: Vec::new(),
            plan_hash: "h".into(),
            run_id: run,
            plan: Vec::new(),
        }
    }

    /// P-103: an edit has its place between two runs, also where one of them made no version and where clocks differ.
    #[test]
    fn an_edit_has_its_place_between_two_runs() {
        let runs = [run(10), run(30), run(50), run(70)];
        let versions = [
            version(1, 15, VersionKind::Proposed, Some(runs[0].id)),
            version(2, 20, VersionKind::Edited, None),
            // Of a refinement that failed there is no version. The clock of this edit is behind that of the next run.
            version(3, 40, VersionKind::Edited, None),
            version(4, 55, VersionKind::Refined, Some(runs[2].id)),
            version(5, 45, VersionKind::Edited, None),
            version(6, 80, VersionKind::Changed, Some(runs[3].id)),
        ];
        let placed = |index: usize| -> Vec<u32> {
            let edits = edits(&runs, &versions, index);
            edits.map(|edit| edit.version).collect()
        };
        assert_eq!(
            [placed(0), placed(1), placed(2), placed(3)],
            [vec![2], vec![3], vec![5], vec![]]
        );
        let before = [0, 1, 2, 3].map(|index| version_before(&runs, &versions, index));
        assert_eq!(before, [0, 2, 3, 5]);
    }
}

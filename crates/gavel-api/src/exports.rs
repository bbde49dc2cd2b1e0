//! Exports of the logs.

use super::names::{names, sent};
use crate::domain::ids::ExportId;
use crate::domain::time::Timestamp;

names! {
    /// What can be exported. Its columns are those of the analysts' view of that name.
    ExportSource {
        /// Decisions.
        Decisions = "decisions",
        /// Tool calls.
        ToolInvocations = "tool-invocations",
        /// Model calls of decisions.
        ModelTurns = "model-turns",
        /// Calls of runs of agents, with their approvals.
        Actions = "actions",
        /// The audit log.
        Audit = "audit",
    }
}

names! {
    /// The format of an export.
    ExportFormat {
        /// RFC 4180, with a line of names.
        Csv = "csv",
        /// An object a line, and a last one with the manifest.
        Ndjson = "ndjson",
        /// Apache Parquet, compressed by zstd.
        Parquet = "parquet",
    }
}

impl ExportFormat {
    /// Its media type.
    #[must_use]
    pub const fn media(self) -> &'static str {
        match self {
            Self::Csv => "text/csv",
            Self::Ndjson => "application/x-ndjson",
            Self::Parquet => "application/vnd.apache.parquet",
        }
    }
}

sent! {
    /// What an export took, as the audit log has it.
    #[derive(PartialEq, Eq)]
    ExportManifest as "ExportManifest" {
        /// Its id.
        export_id: ExportId,
        /// What was exported.
        source: ExportSource,
        /// In which format.
        format: ExportFormat,
        /// The filter, depending on `records.content`.
        filter: Option<String>,
        /// The columns, in order.
        fields: Vec<String>,
        /// Whether texts of CSV are unchanged, also where a spreadsheet takes them for formulas.
        raw: bool,
        /// The earliest time of a row; null: the first row.
        from: Option<Timestamp>,
        /// The time before which its rows are; null: the last row at its start.
        to: Option<Timestamp>,
        /// The user whose rows they are; null: of all.
        rows_of: Option<String>,
        /// How many rows were sent.
        rows: u64,
        /// The id of the first of them.
        first: Option<String>,
        /// The id of the last of them.
        last: Option<String>,
        /// How many bytes were sent.
        bytes: u64,
        /// Hex SHA-256 of them.
        sha256: String,
        /// Whether that was all. Otherwise the connection was broken.
        complete: bool,
    }
}

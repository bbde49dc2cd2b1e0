//! Exports of the logs: rows of the store become the bytes of a file, and the audit log has who took what. An export that
//! cannot be completed, or not entered, is broken off: it never ends as if it were whole.

mod encode;

use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use self::encode::{Encoder, Failure};
use super::caller::Caller;
use super::decisions::only_user;
use super::problem::Problem;
use crate::api::exports::{ExportManifest, ExportSource};
use crate::api::problem::Code;
use crate::domain::ids::{ExportId, TenantId, UserId};
pub use crate::ports::exports::ExportOptions;
use crate::ports::exports::{ExportPage, ExportRows, Exports};
use crate::ports::records::{QueryError, RecordError};

/// Exports, restricted to what a caller may see.
#[derive(Clone)]
pub struct Exporter {
    store: Arc<dyn Exports>,
    /// Those in progress. A worker of the server may end before it, so they are on the runtime that this was made on.
    working: TaskTracker,
    runtime: Handle,
}

/// A part of an export.
#[derive(Debug)]
pub enum Piece {
    /// The next bytes.
    Bytes(Bytes),
    /// It is whole. Without this the export is broken.
    End,
}

/// An export whose first rows are read.
pub struct Begun(Work, Exporter);

struct Work {
    store: Arc<dyn Exports>,
    tenant: TenantId,
    actor: String,
    manifest: ExportManifest,
    rows: Box<dyn ExportRows>,
    page: Option<ExportPage>,
    encoder: Option<Encoder>,
    hash: Sha256,
}

/// Why an export is broken off.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("its reader has left")]
    Left,
    #[error("{0}")]
    Rows(#[from] QueryError),
    #[error("it is not in the audit log: {0}")]
    NotEntered(#[from] RecordError),
    #[error("its rows cannot be written: {0}")]
    Encoder(#[from] Failure),
}

impl Exporter {
    /// Creates exports of `store`, on the current runtime.
    pub fn new(store: Arc<dyn Exports>) -> Self {
        let working = TaskTracker::new();
        working.close();
        let runtime = Handle::current();
        Self {
            store,
            working,
            runtime,
        }
    }

    /// Waits until those whose readers have left are entered.
    pub async fn drained(&self) {
        self.working.wait().await;
    }

    /// Begins an export of the rows of `user` if given, else of all that the caller may see.
    ///
    /// # Errors
    /// Invalid options; the audit log is of no single user; the store is unavailable.
    pub async fn begin(
        &self,
        caller: &Caller,
        user: Option<UserId>,
        source: ExportSource,
        options: ExportOptions,
    ) -> Result<Begun, Problem> {
        let rows_of = only_user(caller).cloned().or_else(|| user.clone());
        if source == ExportSource::Audit && rows_of.is_some() {
            let detail = "The audit log is exported as a whole: by a service that names no user, or by a user with the role \
                          analyst who names none.";
            return Err(Problem::new(Code::Forbidden, detail));
        }
        if let Some((from, to)) = options.from.zip(options.to).filter(|(from, to)| from >= to) {
            let detail = format!("is {to}; allowed: a time after from, which is {from}");
            return Err(Problem::invalid("to", detail));
        }
        let begun = self.store.begin(&caller.tenant, rows_of.as_ref(), source, &options);
        let (columns, mut rows) = begun.await?;
        let page = rows.next().await?;
        let manifest = ExportManifest {
            export_id: ExportId::new(),
            source,
            format: options.format,
            filter: options.filter,
            fields: columns.iter().map(|column| column.name.clone()).collect(),
            raw: options.raw,
            from: options.from,
            to: options.to,
            rows_of: rows_of.map(|user| user.to_string()),
            rows: 0,
            first: None,
            last: None,
            bytes: 0,
            sha256: String::new(),
            complete: false,
        };
        let encoder = Encoder::new(options.format, columns, options.raw).map_err(|error| {
            tracing::error!(%error, "an export cannot be encoded");
            Problem::from(Code::Internal)
        })?;
        let work = Work {
            store: Arc::clone(&self.store),
            tenant: caller.tenant.clone(),
            actor: caller.name_for(user.as_ref()),
            manifest,
            rows,
            page,
            encoder: Some(encoder),
            hash: Sha256::new(),
        };
        Ok(Begun(work, self.clone()))
    }

    /// What an export of the caller has taken, or of another one if the caller sees the rows of all users.
    ///
    /// # Errors
    /// There is none; the store is unavailable.
    pub async fn manifest(&self, caller: &Caller, id: ExportId) -> Result<ExportManifest, Problem> {
        let taken = self.store.taken(&caller.tenant, id).await?;
        let seen = taken.filter(|(actor, _)| only_user(caller).is_none() || *actor == caller.name());
        seen.map(|(_, manifest)| manifest).ok_or_else(|| Code::NotFound.into())
    }
}

impl Begun {
    /// The id under which its manifest is found.
    pub fn id(&self) -> ExportId {
        self.0.manifest.export_id
    }

    /// Sends it. What is read ahead is two pages at most.
    pub fn start(self) -> mpsc::Receiver<Piece> {
        let (sender, pieces) = mpsc::channel(1);
        let Self(work, Exporter { working, runtime, .. }) = self;
        working.spawn_on(work.send(sender), &runtime);
        pieces
    }
}

impl Work {
    async fn send(mut self, to: mpsc::Sender<Piece>) {
        let Err(broken) = self.copy(&to).await else { return };
        let (export, rows) = (self.manifest.export_id, self.manifest.rows);
        match broken {
            Broken::Left => tracing::info!(%export, rows, "an export was broken off: {broken}"),
            _ => tracing::error!(%export, rows, "an export was broken off: {broken}"),
        }
        self.manifest.complete = false;
        if let Err(error) = self.enter().await {
            tracing::error!(%export, rows, actor = self.actor, %error, "a broken export is not in the audit log");
        }
    }

    async fn copy(&mut self, to: &mpsc::Sender<Piece>) -> Result<(), Broken> {
        while let Some(page) = self.next().await? {
            let rows = page.rows.len() as u64;
            let bytes = self.encode(move |encoder| encoder.rows(page.rows)).await?;
            self.hand_over(to, bytes).await?;
            self.manifest.rows += rows;
            self.manifest.first = self.manifest.first.take().or(page.first);
            self.manifest.last = page.last.or(self.manifest.last.take());
        }
        let bytes = self.encode(Encoder::flush).await?;
        self.hand_over(to, bytes).await?;
        self.manifest.sha256 = self.digest();
        let manifest = self.manifest.clone();
        let last = self.encode(move |encoder| encoder.end(&manifest)).await?;
        // Before the last bytes are sent: without an entry there is no whole export.
        self.count(&last);
        self.manifest.complete = true;
        self.enter().await?;
        to.send(Piece::Bytes(last)).await.map_err(|_| Broken::Left)?;
        to.send(Piece::End).await.map_err(|_| Broken::Left)
    }

    async fn next(&mut self) -> Result<Option<ExportPage>, Broken> {
        match self.page.take() {
            Some(page) => Ok(Some(page)),
            None => Ok(self.rows.next().await?),
        }
    }

    /// On a thread for blocking work: it compresses.
    async fn encode<F>(&mut self, work: F) -> Result<Bytes, Broken>
    where
        F: FnOnce(&mut Encoder) -> Result<Vec<u8>, Failure> + Send + 'static,
    {
        let mut encoder = self.encoder.take().ok_or_else(|| Failure::from("it failed before"))?;
        let done = tokio::task::spawn_blocking(move || work(&mut encoder).map(|bytes| (encoder, bytes)));
        let (encoder, bytes) = done.await.map_err(Failure::from)??;
        self.encoder = Some(encoder);
        Ok(bytes.into())
    }

    async fn hand_over(&mut self, to: &mpsc::Sender<Piece>, bytes: Bytes) -> Result<(), Broken> {
        self.count(&bytes);
        to.send(Piece::Bytes(bytes)).await.map_err(|_| Broken::Left)
    }

    fn count(&mut self, bytes: &Bytes) {
        self.hash.update(bytes);
        self.manifest.bytes += bytes.len() as u64;
    }

    fn digest(&self) -> String {
        hex::encode(self.hash.clone().finalize())
    }

    async fn enter(&mut self) -> Result<(), RecordError> {
        self.manifest.sha256 = self.digest();
        self.store.enter(&self.tenant, &self.actor, self.manifest.clone()).await
    }
}

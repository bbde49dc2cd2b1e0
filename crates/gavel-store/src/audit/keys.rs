//! Loads and creates the audit keys.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};

use super::super::connect::Target;
use super::super::db::{Conn, values};
use super::super::error::StoreError;
use super::super::read::ReadOnly;
use super::Signer;
use crate::ports::records::QueryError;

/// The configured keys (`audit.key`, `audit.old_keys`).
#[derive(Clone, Debug, Default)]
pub struct AuditSecrets {
    /// Signs new rows. If absent, gavel creates a key.
    pub current: Option<SecretString>,
    /// Keys of older rows.
    pub old: Vec<SecretString>,
}

/// Where the key for new rows is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// In the configuration.
    Given,
    /// In a file next to the SQLite database, created at the first start.
    File(PathBuf),
    /// In the database itself.
    Database,
}

impl KeyPlace {
    /// The place of the key for new rows.
    pub(super) fn of(target: &Target, given: &AuditSecrets) -> Self {
        match (&given.current, target) {
            (Some(_), _) => Self::Given,
            (None, Target::Sqlite { path, .. }) => Self::File(beside(path)),
            (None, Target::Postgres(_)) => Self::Database,
        }
    }
}

fn beside(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".audit-key");
    name.into()
}

impl AuditSecrets {
    pub(super) fn given(&self) -> Vec<Signer> {
        let secrets = self.current.iter().chain(&self.old);
        secrets.map(|secret| Signer::new(secret.expose_secret())).collect()
    }
}

/// The limits of a key that is stored in the database.
pub const KEY_IN_DATABASE: &str = "audit.key is not set, so the key is stored in the database. The chain then \
     reveals only changes by users who cannot read that table. Set the same GAVEL_AUDIT_KEY on every replica";

/// The key that is stored in the database.
const KEY: &str = "SELECT secret FROM audit_key WHERE id = 1";

/// The key for new rows; created if there is none.
pub(crate) async fn signer(target: &Target, conn: &mut Conn, given: &AuditSecrets) -> Result<Signer, StoreError> {
    match (KeyPlace::of(target, given), &given.current) {
        (KeyPlace::Given, Some(key)) => Ok(Signer::new(key.expose_secret())),
        (KeyPlace::File(path), _) => {
            let secret = match read_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => make_file(&path),
                read => read,
            };
            let secret = secret.map_err(|cause| StoreError::File {
                path: path.display().to_string(),
                cause,
            })?;
            let signer = Signer::new(&secret);
            lost(conn, given, &signer, &path).await?;
            Ok(signer)
        }
        (KeyPlace::Given | KeyPlace::Database, _) => {
            tracing::warn!("audit: {KEY_IN_DATABASE}");
            let secret: String = match conn.one(KEY, vec![]).await? {
                Some(secret) => secret,
                None => {
                    let made = fresh().map_err(|error| StoreError::Unavailable(error.to_string().into()))?;
                    let keep = "INSERT INTO audit_key (id, secret) VALUES (1, $1) ON CONFLICT (id) DO NOTHING";
                    conn.execute(keep, values![&made]).await?;
                    // Another process may have stored its key first.
                    conn.one(KEY, vec![]).await?.unwrap_or(made)
                }
            };
            Ok(Signer::new(&secret))
        }
    }
}

/// Logs an error if the key of the last rows is not in the key file. gavel continues with the new key: an audit of
/// future events is worth more than an outage.
async fn lost(conn: &mut Conn, given: &AuditSecrets, there: &Signer, path: &Path) -> Result<(), StoreError> {
    let last = "SELECT key_id FROM audit ORDER BY number DESC LIMIT 1";
    let Some(key) = conn.one::<String>(last, vec![]).await? else {
        return Ok(());
    };
    if there.id() != key && given.given().iter().all(|signer| signer.id() != key) {
        tracing::error!(
            key,
            "audit: the key of the existing rows is not in {}. They cannot be verified without it, and new rows \
             use another key. Restore the lost key from a backup and add it to audit.old_keys",
            path.display()
        );
    }
    Ok(())
}

/// All available keys, for read-only use.
///
/// # Errors
/// [`StoreError`]: there may be more keys. Those found so far are always returned.
pub(super) async fn all(target: &Target, given: &AuditSecrets) -> (Vec<Signer>, Result<(), StoreError>) {
    let mut found = given.given();
    let read = async {
        found.extend(beside_database(target)?);
        if let Some(path) = target.missing() {
            return Err(StoreError::Missing(path.display().to_string()));
        }
        let mut conn = target.reader().await?;
        let kept = in_database(&mut conn).await;
        conn.close().await;
        found.extend(kept?);
        Ok(())
    };
    let read = read.await;
    (found, read)
}

/// The keys by which rows of a database that is in use are verified.
pub(super) async fn readable(
    target: &Target,
    given: &AuditSecrets,
    reading: &ReadOnly,
) -> Result<Vec<Signer>, QueryError> {
    let beside = beside_database(target).map_err(|error| QueryError::Unavailable(error.to_string().into()))?;
    let kept: Option<String> = reading.one(KEY, vec![]).await?;
    let kept = kept.map(|secret| Signer::new(&secret));
    Ok(given.given().into_iter().chain(beside).chain(kept).collect())
}

/// The key in the file next to a SQLite database.
fn beside_database(target: &Target) -> Result<Option<Signer>, StoreError> {
    let Target::Sqlite { path, .. } = target else {
        return Ok(None);
    };
    let path = beside(path);
    match read_file(&path) {
        Ok(secret) => Ok(Some(Signer::new(&secret))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => {
            let path = path.display().to_string();
            Err(StoreError::File { path, cause })
        }
    }
}

/// The key that is stored in the database.
async fn in_database(conn: &mut Conn) -> Result<Option<Signer>, StoreError> {
    let secret: Option<String> = conn.one(KEY, vec![]).await?;
    Ok(secret.map(|secret| Signer::new(&secret)))
}

/// Minimum length of a key in bytes, as for a configured key.
const SHORTEST: usize = 32;

/// Reads the key file. An emptied or truncated file would hold a guessable key, and rows hashed with it would prove
/// nothing.
fn read_file(path: &Path) -> io::Result<String> {
    let secret = std::fs::read_to_string(path)?;
    match secret.trim().len() {
        SHORTEST.. => Ok(secret),
        bytes => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "it holds {bytes} bytes, but a key has at least {SHORTEST}: restore it from a backup, or remove the file \
                 and gavel creates a new key"
            ),
        )),
    }
}

/// Creates the file atomically, readable only by its owner. Two processes that start at once get the same key.
fn make_file(path: &Path) -> io::Result<String> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}", uuid::Uuid::now_v7()));
    let unfinished = PathBuf::from(unfinished);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let mut file = options.open(&unfinished)?;
    let made = fresh()
        .and_then(|secret| file.write_all(secret.as_bytes()))
        .and_then(|()| file.sync_all())
        .and_then(|()| match std::fs::hard_link(&unfinished, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        });
    std::fs::remove_file(&unfinished)?;
    made?;
    // Rows hashed with the key are durable, so the file's name must be durable too.
    #[cfg(unix)]
    if let Some(directory) = path.parent() {
        let here = directory.as_os_str().is_empty();
        std::fs::File::open(if here { Path::new(".") } else { directory })?.sync_all()?;
    }
    read_file(path)
}

fn fresh() -> io::Result<String> {
    let mut bytes = [0; 32];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random
        .fill(&mut bytes)
        .map_err(|_| io::Error::other("the system returned no random bytes"))?;
    Ok(hex::encode(bytes))
}

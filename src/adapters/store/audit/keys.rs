//! Where the key comes from.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};

use super::super::connect::Target;
use super::super::db::{Conn, Value};
use super::super::error::StoreError;
use super::Signer;
use super::statements::{AuditStatements, KEY};

/// The keys that were given (`audit.key`, `audit.old_keys`).
#[derive(Clone, Debug, Default)]
pub struct AuditSecrets {
    /// What new rows are hashed with; without it gavel makes one.
    pub current: Option<SecretString>,
    /// What older rows were hashed with.
    pub old: Vec<SecretString>,
}

/// Where the key is that new rows are hashed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// It was given.
    Given,
    /// In a file beside the SQLite database; made at the first start.
    File(PathBuf),
    /// In the database itself.
    Database,
}

impl KeyPlace {
    /// Where that is.
    pub(super) fn of(target: &Target, given: &AuditSecrets) -> Self {
        match (&given.current, target) {
            (Some(_), _) => Self::Given,
            (None, Target::Sqlite { options, .. }) => Self::File(beside(options.get_filename())),
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

/// What a key is worth that the database keeps.
pub const KEY_IN_DATABASE: &str = "without audit.key its key stands in the database, so the chain shows changes by those who \
     cannot read that table, and by nobody else; give the same GAVEL_AUDIT_KEY to every replica";

/// The key for new rows; made where there is none.
pub(in super::super) async fn signer(
    target: &Target,
    conn: &mut Conn,
    given: &AuditSecrets,
    texts: &AuditStatements,
) -> Result<Signer, StoreError> {
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
            lost(conn, given, &signer, &path, texts).await?;
            Ok(signer)
        }
        (KeyPlace::Given | KeyPlace::Database, _) => {
            tracing::warn!("audit: {KEY_IN_DATABASE}");
            let secret = match conn.first(&texts.key, vec![]).await? {
                Some(row) => row.text(0)?,
                None => {
                    let made = fresh().map_err(|error| StoreError::Unavailable(error.to_string().into()))?;
                    conn.execute(&texts.keep_key, vec![Value::text(&made)]).await?;
                    // Somebody else's, where two began at once.
                    let kept = conn.first(&texts.key, vec![]).await?;
                    kept.map_or(Ok(made), |row| row.text(0))?
                }
            };
            Ok(Signer::new(&secret))
        }
    }
}

/// Cries out where the file is gone, or another one, that the last rows were hashed with. What is asked of gavel goes on with a new key: the record
/// of what happens from now on is worth more than a service that stands still.
async fn lost(
    conn: &mut Conn,
    given: &AuditSecrets,
    there: &Signer,
    path: &Path,
    texts: &AuditStatements,
) -> Result<(), StoreError> {
    let Some(row) = conn.first(&texts.last_key, vec![]).await? else {
        return Ok(());
    };
    let key = row.text(0)?;
    if there.id() != key && given.given().iter().all(|signer| signer.id() != key) {
        tracing::error!(
            key,
            "audit: the key with which the rows so far were hashed is not in {}; they cannot be verified without it, and those to \
             come are hashed with another one. Put the lost one, from a backup, into audit.old_keys",
            path.display()
        );
    }
    Ok(())
}

/// All keys that can be found, for one who only reads.
pub(super) async fn all(target: &Target, conn: &mut Conn, given: &AuditSecrets) -> Result<Vec<Signer>, StoreError> {
    let mut signers = given.given();
    match beside_database(target) {
        Ok(signer) => signers.extend(signer),
        // What is given is enough, where the file is of a time before that.
        Err(error) if given.current.is_some() => {
            tracing::warn!(%error, "audit: the key beside the database is left out, since another one is given");
        }
        Err(error) => return Err(error),
    }
    signers.extend(in_database(conn).await?);
    Ok(signers)
}

/// The key in the file beside a SQLite database.
pub(super) fn beside_database(target: &Target) -> Result<Option<Signer>, StoreError> {
    let Target::Sqlite { options, .. } = target else {
        return Ok(None);
    };
    let path = beside(options.get_filename());
    match read_file(&path) {
        Ok(secret) => Ok(Some(Signer::new(&secret))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => {
            let path = path.display().to_string();
            Err(StoreError::File { path, cause })
        }
    }
}

/// The key that the database keeps.
pub(super) async fn in_database(conn: &mut Conn) -> Result<Option<Signer>, StoreError> {
    let row = conn.first(&KEY.into(), vec![]).await?;
    row.map(|row| Ok(Signer::new(&row.text(0)?))).transpose()
}

/// The fewest bytes of a key, as of one that is given.
const SHORTEST: usize = 32;

/// A file that was emptied or cut holds a key that anybody could guess: rows that are hashed with it prove nothing.
fn read_file(path: &Path) -> io::Result<String> {
    let secret = std::fs::read_to_string(path)?;
    match secret.trim().len() {
        SHORTEST.. => Ok(secret),
        bytes => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "it holds {bytes} bytes and a key has at least {SHORTEST}: put back the copy of it, or remove the file, and gavel \
                 makes a new key"
            ),
        )),
    }
}

/// Makes the file whole or not at all, readable by its owner alone. Of two processes that begin at once both have the same.
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
    // Rows are durable that are hashed with it: so is its name.
    #[cfg(unix)]
    if let Some(folder) = path.parent() {
        let here = folder.as_os_str().is_empty();
        std::fs::File::open(if here { Path::new(".") } else { folder })?.sync_all()?;
    }
    read_file(path)
}

fn fresh() -> io::Result<String> {
    let mut bytes = [0; 32];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random
        .fill(&mut bytes)
        .map_err(|_| io::Error::other("the system gives no random bytes"))?;
    Ok(hex::encode(bytes))
}

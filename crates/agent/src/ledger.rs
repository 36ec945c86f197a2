//! The agent's memory on disk: the last orders, and where each entry stands. It makes the agent work without the API, and
//! keeps it from pulling a finished image again after kill -9.
//!
//! One file, written in transactions. A file that cannot be read, or is of a later version, is put aside and the agent
//! starts anew: the API and the runtime remember the rest. A file that cannot be written, because its disk is full, is
//! opened anew with the next save. Times are those of the steady clock, which starts over with
//! the machine; the name of the boot stands beside them.

mod record;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use larder_planner::node::{EntryState, Key};
use larder_private_files::DirectoryError;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use self::record::{Record, StoredEntryState, StoredOrders};
use crate::clock::Clock;
use crate::messages::Orders;
use crate::state_dir::{self, LEDGER_FILE};

/// Few small records: redb's own default would allow a gigabyte of cache.
const CACHE_BYTES: usize = 256 * 1024;

const RECORDS: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("records");
const ORDERS: &str = "orders";
/// Begins the names of entries' records; the word is part of the file's format.
const STATE: &str = "track/";

/// Why the agent cannot keep its memory.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The folder cannot be used.
    #[error("cannot keep the agent's state in {}; give it a folder that it may write, with --state-dir", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Other users can read the folder, or it cannot be made.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Another agent uses it.
    #[error("the agent's ledger {} is in use; another agent runs with the same --state-dir", .path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be opened.
    #[error("cannot open the agent's ledger {}", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the store says.
        source: Box<redb::Error>,
    },
}

/// What an earlier life remembers.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) orders: Orders,
    pub(crate) states: BTreeMap<Key, EntryState>,
}

/// The open ledger; without a folder it remembers nothing.
pub(crate) struct Ledger {
    file: Option<LedgerFile>,
    /// What is on disk, to write only what changed.
    written: BTreeMap<String, Vec<u8>>,
}

struct LedgerFile {
    folder: PathBuf,
    /// None after a failure: the store then refuses everything until it is opened anew.
    database: Option<Arc<Database>>,
}

impl Ledger {
    pub(crate) async fn open(folder: Option<&Path>, clock: &Clock) -> Result<(Self, Memory), LedgerError> {
        let Some(folder) = folder else {
            let empty = Self {
                file: None,
                written: BTreeMap::new(),
            };
            return Ok((empty, Memory::default()));
        };
        let (database, written) = open_beside(folder.to_owned()).await?;
        let memory = remember(&written, clock);
        let file = LedgerFile {
            folder: folder.to_owned(),
            database: Some(Arc::new(database)),
        };
        let ledger = Self {
            file: Some(file),
            written,
        };
        Ok((ledger, memory))
    }

    /// Writes what changed. A failure is told once, and that it is over: the agent goes on, it only remembers less.
    pub(crate) async fn save(&mut self, orders: &Orders, states: &BTreeMap<Key, EntryState>, clock: &Clock) {
        let Some(file) = &mut self.file else {
            return;
        };
        let (database, failed_before) = match file.database.take() {
            Some(database) => (database, false),
            None => match open_beside(file.folder.clone()).await {
                Ok((database, written)) => {
                    self.written = written;
                    (Arc::new(database), true)
                }
                Err(error) => {
                    tracing::debug!(%error, "the ledger cannot be opened anew");
                    return;
                }
            },
        };
        let wanted = records(orders, states, clock.boot(), clock.now(), &self.written);
        let changes: Vec<(String, Option<Vec<u8>>)> = changes(&self.written, &wanted);
        if changes.is_empty() {
            file.database = Some(database);
            return;
        }
        let writer = Arc::clone(&database);
        let saved = tokio::task::spawn_blocking(move || write(&writer, &changes)).await;
        let failure = match saved {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        match failure {
            None => {
                if failed_before {
                    tracing::info!("the ledger is written again");
                }
                self.written = wanted;
                file.database = Some(database);
            }
            Some(error) if failed_before => tracing::debug!(error, "the ledger still cannot be written"),
            Some(error) => {
                tracing::warn!(
                    error,
                    "the ledger cannot be written; a restart would forget the latest results"
                );
            }
        }
    }
}

/// Opens the file where blocking does no harm.
async fn open_beside(folder: PathBuf) -> Result<(Database, BTreeMap<String, Vec<u8>>), LedgerError> {
    let path = folder.join(LEDGER_FILE);
    let opened = tokio::task::spawn_blocking(move || open_in(&folder)).await;
    opened.map_err(|join| LedgerError::Folder {
        path,
        source: std::io::Error::other(join),
    })?
}

fn open_in(folder: &Path) -> Result<(Database, BTreeMap<String, Vec<u8>>), LedgerError> {
    state_dir::prepare(folder)?;
    let path = folder.join(LEDGER_FILE);
    match open_file(&path) {
        Ok(opened) => Ok(opened),
        Err(redb::Error::DatabaseAlreadyOpen) => Err(LedgerError::InUse { path }),
        // A full disk says nothing against what is on it.
        Err(redb::Error::Io(error)) if is_full(&error) => Err(LedgerError::Open {
            path,
            source: Box::new(redb::Error::Io(error)),
        }),
        Err(error) => {
            let aside = path.with_extension("redb.unreadable");
            tracing::warn!(%error, aside = %aside.display(), "the ledger cannot be read; it is put aside and a new one begun");
            std::fs::rename(&path, &aside).map_err(|source| LedgerError::Folder {
                path: folder.to_owned(),
                source,
            })?;
            open_file(&path).map_err(|source| LedgerError::Open {
                path,
                source: Box::new(source),
            })
        }
    }
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
    )
}

fn open_file(path: &Path) -> Result<(Database, BTreeMap<String, Vec<u8>>), redb::Error> {
    let file = larder_private_files::open(path).map_err(redb::Error::Io)?;
    let database = Database::builder().set_cache_size(CACHE_BYTES).create_file(file)?;
    let transaction = database.begin_write()?;
    transaction.open_table(RECORDS)?;
    transaction.commit()?;
    let mut written = BTreeMap::new();
    for record in database.begin_read()?.open_table(RECORDS)?.iter()? {
        let (key, value) = record?;
        written.insert(key.value().to_owned(), value.value().to_vec());
    }
    Ok((database, written))
}

fn write(database: &Database, changes: &[(String, Option<Vec<u8>>)]) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut table = transaction.open_table(RECORDS)?;
        for (key, value) in changes {
            match value {
                Some(value) => drop(table.insert(key.as_str(), value.as_slice())?),
                None => drop(table.remove(key.as_str())?),
            }
        }
    }
    transaction.commit()?;
    Ok(())
}

fn changes(before: &BTreeMap<String, Vec<u8>>, after: &BTreeMap<String, Vec<u8>>) -> Vec<(String, Option<Vec<u8>>)> {
    let gone = before
        .keys()
        .filter(|key| !after.contains_key(*key))
        .map(|key| (key.clone(), None));
    let new = after.iter().filter(|(key, value)| before.get(*key) != Some(*value));
    gone.chain(new.map(|(key, value)| (key.clone(), Some(value.clone()))))
        .collect()
}

/// What should be on disk. A state that did not change keeps the time of its last change.
fn records(
    orders: &Orders,
    states: &BTreeMap<Key, EntryState>,
    boot: &str,
    now: Duration,
    before: &BTreeMap<String, Vec<u8>>,
) -> BTreeMap<String, Vec<u8>> {
    let mut wanted = BTreeMap::new();
    if let Orders::Given(given) = orders {
        wanted.insert(ORDERS.to_owned(), Record::V1(StoredOrders::of(given)).to_bytes());
    }
    for (key, state) in states {
        let name = format!("{STATE}{}\n{}", key.name, key.tag);
        let stored = StoredEntryState::of(key, state, boot, now);
        let known = before
            .get(&name)
            .and_then(|bytes| Record::<StoredEntryState>::from_bytes(bytes));
        let same = known.is_some_and(|Record::V1(known)| known.is_as_good_as(&stored));
        let bytes = match before.get(&name) {
            Some(bytes) if same => bytes.clone(),
            _ => Record::V1(stored).to_bytes(),
        };
        wanted.insert(name, bytes);
    }
    wanted
}

fn remember(written: &BTreeMap<String, Vec<u8>>, clock: &Clock) -> Memory {
    let orders = written
        .get(ORDERS)
        .and_then(|bytes| Record::<StoredOrders>::from_bytes(bytes));
    let states = written.iter().filter(|(name, _)| name.starts_with(STATE));
    let states = states.filter_map(|(_, bytes)| {
        let Record::V1(stored) = Record::<StoredEntryState>::from_bytes(bytes)?;
        Some(stored.resumed(clock.boot(), clock.now()))
    });
    Memory {
        orders: orders.map_or(Orders::Unknown, |Record::V1(stored)| Orders::Given(stored.given())),
        states: states.collect(),
    }
}

#[cfg(test)]
mod tests;

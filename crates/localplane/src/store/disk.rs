//! The file: every object's text and the revision counter, in redb. A batch is on disk when `commit` returns.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

use crate::{
    registry::Registry,
    stored::{Key, Shared, Stored},
};

const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");
const REVISION: &str = "revision";
const FORMAT: &str = "format";
/// Raised when what is in the file changes its meaning.
const CURRENT_FORMAT: u64 = 1;

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The database refused.
    #[error("reading or writing the object database")]
    Database(#[source] Box<redb::Error>),
    /// The task that wrote was torn down with its runtime.
    #[error("writing the object database was interrupted by a shutdown")]
    Interrupted,
    /// Another program version wrote the file.
    #[error("the object database has format {0}, this program knows {CURRENT_FORMAT}; use the program that wrote it")]
    Format(u64),
    /// An object in the file is not what was written.
    #[error("reading object {key} of the object database")]
    Object {
        /// The object's key in the file.
        key: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

impl<E: Into<redb::Error>> From<E> for DiskError {
    fn from(error: E) -> Self {
        Self::Database(Box::new(error.into()))
    }
}

/// What was in the file.
#[derive(Default)]
pub(crate) struct Loaded {
    pub(crate) revision: u64,
    pub(crate) objects: Vec<(usize, Shared)>,
}

/// One row to write, or to remove for `None`.
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) object: Option<Shared>,
}

/// The open file.
pub(crate) struct Disk {
    database: Database,
}

impl Disk {
    /// Opens or creates the file and reads everything in it.
    pub(crate) fn open(path: &Path, registry: &Registry) -> Result<(Self, Loaded), DiskError> {
        let file = larder_private_files::open(path).map_err(redb::Error::Io)?;
        let database = Database::builder().create_file(file)?;
        let transaction = database.begin_write()?;
        {
            let mut counters = transaction.open_table(COUNTERS)?;
            let format = counters.get(FORMAT)?.map(|format| format.value());
            match format {
                None => {
                    counters.insert(FORMAT, CURRENT_FORMAT)?;
                }
                Some(CURRENT_FORMAT) => {}
                Some(other) => return Err(DiskError::Format(other)),
            }
            transaction.open_table(OBJECTS)?;
        }
        transaction.commit()?;
        let loaded = load(&database, registry)?;
        Ok((Self { database }, loaded))
    }

    /// Writes a batch and the revision it ends with; on return it survives anything short of a broken disk.
    pub(crate) fn commit(&self, rows: &[Row], revision: u64) -> Result<(), DiskError> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            let mut value = Vec::new();
            for row in rows {
                match &row.object {
                    Some(object) => {
                        value.clear();
                        value.extend_from_slice(&object.written.to_be_bytes());
                        value.extend_from_slice(object.tail());
                        objects.insert(row.key.as_str(), value.as_slice())?;
                    }
                    None => {
                        objects.remove(row.key.as_str())?;
                    }
                }
            }
            transaction.open_table(COUNTERS)?.insert(REVISION, revision)?;
        }
        transaction.commit()?;
        Ok(())
    }
}

/// The key of an object in the file. Neither namespaces nor names contain a slash.
pub(crate) fn row_key(registry: &Registry, key: &Key) -> String {
    let resource = registry.get(key.resource).storage_name();
    format!("{resource}/{}/{}", key.name.namespace, key.name.name)
}

fn load(database: &Database, registry: &Registry) -> Result<Loaded, DiskError> {
    let transaction = database.begin_read()?;
    let revision = transaction
        .open_table(COUNTERS)?
        .get(REVISION)?
        .map_or(0, |revision| revision.value());
    let mut loaded = Loaded {
        revision,
        objects: Vec::new(),
    };
    for row in transaction.open_table(OBJECTS)?.iter()? {
        let (key, value) = row?;
        let key = key.value();
        let name = key.split('/').next().unwrap_or_default();
        let Some(resource) = registry
            .resources()
            .iter()
            .find(|resource| resource.storage_name() == name)
        else {
            tracing::warn!(
                key,
                "an object of a kind that is not served any more stays in the file, unseen"
            );
            continue;
        };
        let (written, tail) = value.value().split_at_checked(8).unwrap_or_default();
        let written = i64::from_be_bytes(written.try_into().unwrap_or_default());
        let object =
            Stored::from_tail(resource, Bytes::copy_from_slice(tail), written).map_err(|source| DiskError::Object {
                key: key.to_owned(),
                source,
            })?;
        loaded.objects.push((resource.id, Arc::new(object)));
    }
    Ok(loaded)
}

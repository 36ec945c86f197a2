use jiff::Timestamp;
use larder_api::contract::OrderId;
use larder_api::node_image::{ImageSpec, ImageTagSpec, NodeImageSpec};
use larder_planner::node::{Ended, Image, NodeScheduler, NodeStep, entries};

use super::*;
use crate::messages::Given;

fn clock(boot: &str, seconds: u64) -> Clock {
    Clock::new(boot, Duration::from_secs(seconds), || Timestamp::UNIX_EPOCH)
}

fn orders(tags: &[&str]) -> Orders {
    let tag = |tag: &&str| ImageTagSpec {
        tag: (*tag).into(),
        ..ImageTagSpec::default()
    };
    let image = ImageSpec {
        tags: tags.iter().map(tag).collect(),
        ..ImageSpec::default()
    };
    let spec = NodeImageSpec {
        images: [("app".to_owned(), image)].into(),
        ..NodeImageSpec::default()
    };
    Orders::Given(Given {
        order: OrderId {
            uid: "uid".into(),
            generation: 3,
        },
        spec: Arc::new(spec),
        said: None,
    })
}

/// A scheduler whose first entry has been pulled and whose second is being pulled.
fn scheduler(orders: &Orders, clock: &Clock) -> NodeScheduler {
    let Orders::Given(given) = orders else { panic!() };
    let mut scheduler = NodeScheduler::new(2);
    scheduler.take_orders(entries(&given.spec), None, clock.now());
    let steps = scheduler.decide(clock.now(), &clock.wall());
    let NodeStep::Pull { run, .. } = steps[0] else {
        panic!("{steps:?}")
    };
    let image = Image {
        id: "id".into(),
        digest: None,
        ..Image::default()
    };
    scheduler.ended(run, Ended::Pulled(image), clock.now(), &clock.wall());
    scheduler
}

#[tokio::test]
async fn a_later_life_remembers_orders_and_results() {
    let folder = tempfile::tempdir().unwrap();
    let first = clock("boot", 100);
    let orders = orders(&["1", "2"]);
    let scheduler = scheduler(&orders, &first);
    let (mut ledger, memory) = Ledger::open(Some(folder.path()), &first).await.unwrap();
    assert_eq!((memory.orders, memory.states.len()), (Orders::Unknown, 0));
    ledger.save(&orders, scheduler.states(), &first).await;
    drop(ledger);
    let (_, memory) = Ledger::open(Some(folder.path()), &clock("boot", 107)).await.unwrap();
    assert_eq!(memory.orders, orders);
    let states: Vec<(String, bool, u32)> = memory
        .states
        .iter()
        .map(|(key, state)| (key.tag.clone(), state.is_there(), state.attempts))
        .collect();
    assert_eq!(states, [("1".to_owned(), true, 1), ("2".to_owned(), false, 0)]);
}

#[tokio::test]
async fn entries_that_left_are_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock("boot", 1);
    let both = orders(&["1", "2"]);
    let (mut ledger, _) = Ledger::open(Some(folder.path()), &clock).await.unwrap();
    ledger.save(&both, scheduler(&both, &clock).states(), &clock).await;
    let one = orders(&["2"]);
    ledger.save(&one, scheduler(&one, &clock).states(), &clock).await;
    drop(ledger);
    let (_, memory) = Ledger::open(Some(folder.path()), &clock).await.unwrap();
    assert_eq!(
        memory.states.keys().map(|key| key.tag.as_str()).collect::<Vec<_>>(),
        ["2"]
    );
}

#[tokio::test]
async fn a_second_agent_on_the_same_folder_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock("boot", 1);
    let _first = Ledger::open(Some(folder.path()), &clock).await.unwrap();
    let Err(error) = Ledger::open(Some(folder.path()), &clock).await else {
        panic!("two agents share a ledger");
    };
    assert!(matches!(error, LedgerError::InUse { .. }), "{error:?}");
}

#[tokio::test]
async fn a_damaged_file_is_put_aside() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join(LEDGER_FILE),
        "no database at all, but long enough to look at",
    )
    .unwrap();
    let (_, memory) = Ledger::open(Some(folder.path()), &clock("boot", 1)).await.unwrap();
    assert_eq!(memory.orders, Orders::Unknown);
    assert!(folder.path().join("ledger.redb.unreadable").exists());
}

#[tokio::test]
async fn the_ledger_is_readable_by_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let open_mode = std::fs::Permissions::from_mode(0o755);
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::set_permissions(&state, open_mode.clone()).unwrap();
    drop(Ledger::open(Some(&state), &clock("boot", 1)).await.unwrap());
    assert_eq!((mode(&state), mode(&state.join(LEDGER_FILE))), (0o700, 0o600));

    std::fs::write(state.join("of-another-program"), "").unwrap();
    std::fs::set_permissions(&state, open_mode).unwrap();
    let Err(error) = Ledger::open(Some(&state), &clock("boot", 1)).await else {
        panic!("a directory that others can read is used");
    };
    let command = format!("run: chmod 700 {}", state.display());
    assert!(error.to_string().contains(&command), "{error}");
}

#[tokio::test]
async fn a_ledger_behind_a_symbolic_link_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = folder.path().join("elsewhere");
    std::fs::write(&elsewhere, "").unwrap();
    let state = folder.path().join("state");
    std::fs::create_dir(&state).unwrap();
    std::os::unix::fs::symlink(&elsewhere, state.join(LEDGER_FILE)).unwrap();
    drop(Ledger::open(Some(&state), &clock("boot", 1)).await.unwrap());
    assert_eq!(std::fs::metadata(&elsewhere).unwrap().len(), 0);
    assert!(std::fs::symlink_metadata(state.join(LEDGER_FILE)).unwrap().is_file());
}

/// A store on a disk that is full.
#[derive(Debug, Default)]
struct Full {
    store: redb::backends::InMemoryBackend,
    now: Arc<std::sync::atomic::AtomicBool>,
}

impl redb::StorageBackend for Full {
    fn len(&self) -> std::io::Result<u64> {
        self.store.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.store.read(offset, out)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.store.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.store.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        if self.now.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.store.write(offset, data)
    }
}

#[tokio::test]
async fn a_disk_that_was_full_once_does_not_end_the_agents_memory() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock("boot", 1);
    let orders = orders(&["1", "2"]);
    let scheduler = scheduler(&orders, &clock);
    let (mut ledger, _) = Ledger::open(Some(folder.path()), &clock).await.unwrap();
    let full = Full::default();
    let now = Arc::clone(&full.now);
    let database = Database::builder().create_with_backend(full).unwrap();
    now.store(true, std::sync::atomic::Ordering::SeqCst);
    ledger.file.as_mut().unwrap().database = Some(Arc::new(database));

    ledger.save(&orders, scheduler.states(), &clock).await;
    assert!(ledger.written.is_empty(), "nothing was written");

    ledger.save(&orders, scheduler.states(), &clock).await;
    drop(ledger);
    let (_, memory) = Ledger::open(Some(folder.path()), &clock).await.unwrap();
    assert_eq!((memory.orders, memory.states.len()), (orders, 2));
}

#[tokio::test]
async fn bytes_of_a_running_pull_are_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock("boot", 1);
    let orders = orders(&["1", "2"]);
    let mut scheduler = scheduler(&orders, &clock);
    let (mut ledger, _) = Ledger::open(Some(folder.path()), &clock).await.unwrap();
    ledger.save(&orders, scheduler.states(), &clock).await;
    let before = ledger.written.clone();
    scheduler.progress(2, 10, 100, Duration::from_secs(1));
    ledger.save(&orders, scheduler.states(), &clock).await;
    assert_eq!(ledger.written, before);
}

/// Records of the first version as they lie on disks out there. A change of this text is a change of the format.
const ORDERS_V1: &str = r#"{"V1":{"order":{"uid":"u","generation":7},"spec":{"images":{"app":{"tags":[{"tag":"1","pullPolicy":{"timeoutSeconds":600,"backoffLimit":3,"ttlSecondsAfterFinished":0},"version":2}]}}}}}"#;
const STATE_V1: &str = r#"{"V1":{"key":{"name":"app","tag":"1"},"boot":"b","saved":{"secs":9,"nanos":0},"track":{"version":2,"seen":{"secs":5,"nanos":0},"spent":{"secs":1,"nanos":0},"stage":{"Done":"Succeeded"},"changed":{"secs":8,"nanos":0},"attempts":1,"waits":0,"lost":0,"again":false,"trouble":null,"note":null,"start_time":"1970-01-01T00:00:00Z","completion_time":"1970-01-01T00:00:08Z","bytes":{"done":5,"total":5},"digest":"sha256:1","image_id":"id","last_succeeded":{"version":2,"digest":"sha256:1","completionTime":"1970-01-01T00:00:08Z"}}}}"#;

#[test]
fn records_of_the_first_version_stay_readable() {
    let Record::V1(orders) = Record::<StoredOrders>::from_bytes(ORDERS_V1.as_bytes()).unwrap();
    assert_eq!(Record::V1(orders).to_bytes(), ORDERS_V1.as_bytes());
    let Record::V1(state) = Record::<StoredEntryState>::from_bytes(STATE_V1.as_bytes()).unwrap();
    assert_eq!(String::from_utf8(Record::V1(state).to_bytes()).unwrap(), STATE_V1);
}

#[test]
fn a_record_of_a_later_version_is_passed_over() {
    assert!(Record::<StoredEntryState>::from_bytes(br#"{"V9":{"key":1}}"#).is_none());
}

//! One node: its runtime, its clocks, its disk, and the agent that runs on it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use larder_model::ImageRef;
use larder_planner::node::Key;

use crate::agent::{Agent, Memory, Work};
use crate::queue::Millis;
use crate::stream::Stream;

/// A node of the simulated fleet.
pub(crate) struct Machine {
    pub(crate) name: String,
    /// Images that the runtime has.
    pub(crate) images: BTreeSet<ImageRef>,
    pub(crate) max_pulls: usize,
    pub(crate) disk_is_full: bool,
    pub(crate) runtime_is_down: bool,
    pub(crate) is_online: bool,
    /// When it booted: its steady clock begins there.
    pub(crate) booted: Millis,
    boots: u64,
    /// How far its wall clock is ahead.
    pub(crate) wall: SignedDuration,
    keys: u64,
    pub(crate) number: u64,
    /// What is on its disk.
    pub(crate) memory: Memory,
    pub(crate) agent: Option<Agent>,
    /// Which process of the agent: what was sent to an earlier one is lost.
    pub(crate) life: u64,
    pub(crate) stream: Option<Stream>,
    /// What runs on the node.
    pub(crate) works: BTreeMap<u64, Work>,
    pub(crate) turn_at: Option<Millis>,
    pub(crate) write_in_flight: Option<u64>,
    pub(crate) write_not_before: Millis,
    pub(crate) write_failures: u32,
    pub(crate) writes: u64,
    /// Entries that were to be pulled afresh since their last pull.
    pub(crate) wanted_fresh: BTreeSet<Key>,
    /// Versions that were pulled successfully, by NodeImage and entry, and not lost since.
    pub(crate) pulled: BTreeMap<(String, Key), i64>,
}

impl Machine {
    pub(crate) fn new(number: u64, max_pulls: usize) -> Self {
        Self {
            name: format!("node-{number:03}"),
            images: BTreeSet::new(),
            max_pulls,
            disk_is_full: false,
            runtime_is_down: false,
            is_online: true,
            booted: 0,
            boots: 0,
            wall: SignedDuration::ZERO,
            keys: 0,
            number,
            memory: Memory::default(),
            agent: None,
            life: 0,
            stream: None,
            works: BTreeMap::new(),
            turn_at: None,
            write_in_flight: None,
            write_not_before: 0,
            write_failures: 0,
            writes: 0,
            wanted_fresh: BTreeSet::new(),
            pulled: BTreeMap::new(),
        }
    }

    /// Its clock that never jumps.
    pub(crate) fn steady(&self, now: Millis) -> Duration {
        Duration::from_millis(now.saturating_sub(self.booted))
    }

    /// When a moment of that clock is.
    pub(crate) fn moment(&self, steady: Duration) -> Millis {
        self.booted + Millis::try_from(steady.as_millis()).unwrap_or(Millis::MAX / 2)
    }

    /// The time of day that it believes in, in whole seconds as it is written.
    pub(crate) fn wall(&self, time: Timestamp) -> Time {
        let wall = time.checked_add(self.wall).unwrap_or(time);
        Time(Timestamp::from_second(wall.as_second()).unwrap_or(wall))
    }

    /// The public half of its key: any 32 bytes will do, for nothing is opened here.
    pub(crate) fn public_key(&self) -> String {
        let mut bytes = [7_u8; 32];
        bytes[..8].copy_from_slice(&(self.number + 1).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.keys.to_le_bytes());
        STANDARD.encode(bytes)
    }

    /// Ends the agent's process.
    pub(crate) fn stop_agent(&mut self) {
        self.agent = None;
        self.stream = None;
        self.works.clear();
        self.turn_at = None;
        self.write_in_flight = None;
        self.life += 1;
    }

    /// Starts the agent with what is on the disk.
    pub(crate) fn start_agent(&mut self, now: Millis) {
        self.stop_agent();
        self.write_not_before = 0;
        self.agent = Some(Agent::new(self.max_pulls, &self.memory, self.boots, self.steady(now)));
    }

    /// The machine restarts: its steady clock begins anew.
    pub(crate) fn reboot(&mut self, now: Millis) {
        self.stop_agent();
        self.booted = now;
        self.boots += 1;
    }

    /// The agent's folder is lost, and its key with it.
    pub(crate) fn lose_state(&mut self) {
        self.memory = Memory::default();
        self.keys += 1;
        self.pulled.clear();
    }

    pub(crate) fn save(&mut self, now: Millis) {
        let (boots, steady) = (self.boots, self.steady(now));
        if let Some(agent) = &self.agent {
            self.memory = agent.memory(boots, steady);
        }
    }

    /// Takes in new orders: an entry that left and is made anew is answered anew.
    pub(crate) fn remember_orders(&mut self) {
        let Some(agent) = &self.agent else {
            return;
        };
        let spec = agent.spec();
        let stays = |key: &Key| {
            let image = spec.and_then(|spec| spec.images.get(&key.name));
            image.is_some_and(|image| image.tags.iter().any(|entry| entry.tag == key.tag))
        };
        self.pulled.retain(|(_, key), _| stays(key));
        self.wanted_fresh.retain(|key| stays(key));
        self.wanted_fresh.extend(agent.wants_fresh());
    }

    /// Images leave behind the agent's back.
    pub(crate) fn collect_garbage(&mut self, keep: impl Fn(&ImageRef) -> bool) {
        self.images.retain(|image| keep(image));
        self.pulled.clear();
    }
}

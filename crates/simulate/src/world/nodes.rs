//! The nodes: what agents see, decide, pull and report.

use std::time::Duration;

use larder_model::{NodeName, Reason};
use larder_seal::{Binding, PublicKey, sealed_id};

use super::{Event, Sender, Watcher, World};
use crate::agent::{Agent, End, Pull, Work};
use crate::api::{Call, Key, Kind, Response};
use crate::queue::Millis;
use crate::stream::Item;

impl World {
    /// Starts a node's agent, or starts it anew.
    pub(crate) fn start_agent(&mut self, index: usize) {
        let now = self.now();
        let Some(machine) = self.machines.get_mut(index) else {
            return;
        };
        machine.start_agent(now);
        let answers = !machine.runtime_is_down;
        self.watch(Watcher::Agent(index), 0);
        self.wake_agent(index, now);
        if answers {
            self.show_runtime(index);
        }
    }

    pub(crate) fn wake_agent(&mut self, index: usize, at: Millis) {
        let Some(machine) = self.machines.get_mut(index).filter(|machine| machine.agent.is_some()) else {
            return;
        };
        if machine.turn_at.is_none_or(|known| at < known) {
            machine.turn_at = Some(at);
            self.queue.at(at, Event::AgentTurn(index, machine.life));
        }
    }

    /// The agent's watch has something to show.
    pub(super) fn agent_sees(&mut self, index: usize) {
        let now = self.now();
        let Some(machine) = self.machines.get_mut(index) else {
            return;
        };
        let steady = machine.steady(now);
        let current = self.api.get(&Key::cluster(Kind::NodeImage, &machine.name));
        let (Some(stream), Some(agent), true) = (&mut machine.stream, &mut machine.agent, machine.is_online) else {
            // The connection is gone; back online the agent lists anew.
            machine.stream = None;
            return;
        };
        while let Some(item) = stream.pop(now) {
            let taken = match &item {
                Item::Shown(object) => match &object.node_image {
                    Some(image) => agent.take(image, object.version, false, steady),
                    None => true,
                },
                // A list without the object, and a deletion, count only if a fresh read says the same.
                Item::Gone(_) | Item::Complete => false,
                Item::Begin => true,
            };
            if taken {
                continue;
            }
            match current.and_then(|object| object.node_image.as_ref().map(|image| (image, object.version))) {
                Some((image, version)) => {
                    agent.take(image, version, true, steady);
                }
                None => agent.withdraw(),
            }
        }
        machine.remember_orders();
        self.wake_agent(index, now);
    }

    pub(super) fn turn_agent(&mut self, index: usize, life: u64) {
        let (now, time) = (self.now(), self.time());
        let Some(machine) = self.machines.get_mut(index) else {
            return;
        };
        if machine.life != life || machine.turn_at.is_none_or(|at| now < at) {
            return;
        }
        machine.turn_at = None;
        let (steady, wall) = (machine.steady(now), machine.wall(time));
        let Some(agent) = &mut machine.agent else {
            return;
        };
        let decided = agent.decide(steady, &wall);
        machine.save(now);
        let mut canceled = false;
        for run in decided.cancels {
            if let (Some(work), Some(agent)) = (machine.works.remove(&run), &mut machine.agent) {
                agent.ended(run, &work, End::Canceled, steady, &wall);
                canceled = true;
            }
        }
        for (run, work) in decided.works {
            self.start_work(index, run, work);
        }
        self.report(index);
        let Some(machine) = self.machines.get(index) else {
            return;
        };
        let wake = machine.agent.as_ref().and_then(Agent::wake_at);
        let wake = wake.map(|wake| machine.moment(wake).max(now + 1));
        if let Some(wake) = wake.into_iter().chain(canceled.then_some(now + 1)).min() {
            self.wake_agent(index, wake);
        }
    }

    fn start_work(&mut self, index: usize, run: u64, work: Work) {
        let registry = self.faults.pull_millis.max(2);
        let Some(machine) = self.machines.get_mut(index) else {
            return;
        };
        let takes = match &work {
            Work::PinOp => return,
            Work::Look(_) => self.random.between(1..=10),
            Work::Pull(pull) => {
                self.checks.pull_starts(machine, pull);
                let takes = self.random.between(1..=registry);
                let limit = Millis::try_from(pull.limit.as_millis()).unwrap_or(Millis::MAX);
                takes.min(limit)
            }
        };
        let life = machine.life;
        machine.works.insert(run, work);
        self.queue.after(takes, Event::WorkEnds { index, life, run });
    }

    pub(super) fn work_ends(&mut self, index: usize, life: u64, run: u64) {
        let (now, time) = (self.now(), self.time());
        let Some(machine) = self.machines.get_mut(index).filter(|machine| machine.life == life) else {
            return;
        };
        let Some(work) = machine.works.remove(&run) else {
            return;
        };
        let end = self.outcome(index, &work);
        let Some(machine) = self.machines.get_mut(index) else {
            return;
        };
        let (steady, wall) = (machine.steady(now), machine.wall(time));
        if let (Work::Pull(pull), End::Present) = (&work, &end) {
            let uid = machine.agent.as_ref().and_then(|agent| agent.uid()).unwrap_or_default();
            let entry = (uid.to_owned(), pull.entry.key.clone());
            machine.pulled.insert(entry, pull.entry.version);
            machine.wanted_fresh.remove(&pull.entry.key);
            machine.images.extend(pull.entry.image.clone());
        }
        let Some(agent) = &mut machine.agent else {
            return;
        };
        agent.ended(run, &work, end, steady, &wall);
        self.wake_agent(index, now);
    }

    /// How a look or pull ends.
    fn outcome(&mut self, index: usize, work: &Work) -> End {
        let now = self.now();
        let Some(machine) = self.machines.get(index) else {
            return End::Canceled;
        };
        if machine.runtime_is_down {
            return End::Failed(Reason::RuntimeDown);
        }
        let pull = match work {
            Work::PinOp => return End::Canceled,
            Work::Look(key) => {
                let there = machine
                    .images
                    .iter()
                    .any(|image| image.name() == key.name && image.tag_text() == key.tag);
                return if there { End::Present } else { End::Absent };
            }
            Work::Pull(pull) => pull,
        };
        if now < self.registry_down_until {
            return End::Failed(Reason::Unreachable);
        }
        if machine.disk_is_full {
            return End::Failed(Reason::NoSpace);
        }
        match &pull.entry.image {
            Ok(image) if image.registry().starts_with("nowhere") => End::Failed(Reason::NotFound),
            Ok(image) if image.registry().starts_with("private") => self.login(index, pull),
            Ok(_) if pull.limit < Duration::from_secs(1) => End::TimedOut,
            Ok(_) => End::Present,
            Err(_) => End::Failed(Reason::InvalidReference),
        }
    }

    /// Whether the node was sent credentials that it can open and the registry accepts.
    fn login(&self, index: usize, pull: &Pull) -> End {
        let denied = End::Failed(Reason::AuthDenied);
        let (Some(machine), Ok(image)) = (self.machines.get(index), &pull.entry.image) else {
            return denied;
        };
        let Some((agent, uid)) = machine.agent.as_ref().and_then(|agent| Some((agent, agent.uid()?))) else {
            return denied;
        };
        if pull.entry.credentials.is_empty() {
            return denied;
        }
        let (Ok(key), Ok(node)) = (PublicKey::parse(&machine.public_key()), NodeName::parse(&machine.name)) else {
            return denied;
        };
        let fingerprint = key.fingerprint();
        let sealed = agent.spec().into_iter().flat_map(|spec| &spec.sealed_credentials);
        let mine = sealed.filter(|sealed| pull.entry.credentials.contains(&sealed.id) && sealed.key == fingerprint);
        let mine: Vec<&str> = mine.map(|sealed| sealed.id.as_str()).collect();
        if mine.is_empty() {
            return End::Failed(Reason::CredentialsUnreadable);
        }
        let entry = agent.spec().and_then(|spec| spec.images.get(&pull.entry.key.name));
        let claims = entry
            .into_iter()
            .flat_map(|image| &image.tags)
            .flat_map(|tag| &tag.claims);
        let uids = claims.map(|claim| claim.uid.as_str()).chain([uid]);
        for claim_uid in uids {
            let binding = Binding {
                node: &node,
                node_image_uid: uid,
                image,
                claim_uid,
            };
            let accepted = |source: &String| mine.contains(&sealed_id(&key, &binding, source).as_str());
            if self.good_logins.iter().any(accepted) {
                return End::Present;
            }
        }
        denied
    }

    /// Writes what the API should show, if it is time.
    fn report(&mut self, index: usize) {
        let (now, time) = (self.now(), self.time());
        let Some(machine) = self.machines.get_mut(index) else {
            return;
        };
        if machine.write_in_flight.is_some() {
            return;
        }
        let (steady, wall, key) = (machine.steady(now), machine.wall(time), machine.public_key());
        let Some((due, patch)) = machine
            .agent
            .as_mut()
            .and_then(|agent| agent.report(&key, steady, &wall))
        else {
            return;
        };
        let due = machine.moment(due).max(machine.write_not_before);
        if now < due {
            self.wake_agent(index, due);
            return;
        }
        machine.writes += 1;
        let id = machine.writes;
        machine.write_in_flight = Some(id);
        let sender = Sender::Agent {
            index,
            life: machine.life,
        };
        let key = Key::cluster(Kind::NodeImage, &machine.name);
        self.checks.reported(&key, now);
        self.send(sender, id, Call::JsonPatchStatus(key, patch));
    }

    /// A report was answered.
    pub(super) fn reported(&mut self, index: usize, life: u64, id: u64, response: Response) {
        let now = self.now();
        let pause = self.random.between(250..=500);
        let Some(machine) = self.machines.get_mut(index).filter(|machine| machine.life == life) else {
            return;
        };
        if machine.write_in_flight != Some(id) {
            return;
        }
        machine.write_in_flight = None;
        if let (Response::Object(object), Some(agent)) = (response, &mut machine.agent) {
            machine.write_failures = 0;
            if let Some(image) = &object.node_image {
                agent.reported(image, object.version);
            }
        } else {
            machine.write_failures += 1;
            let pause = (pause << machine.write_failures.min(10)).min(30_000);
            machine.write_not_before = now + pause;
        }
        self.wake_agent(index, now);
    }
}

//! Watches: lists, changes on their way to whoever watches, and what goes wrong with them.

use super::{Event, Watcher, World};
use crate::api::{Change, Kind};
use crate::queue::Millis;
use crate::stream::{Item, Scope, Stream};

impl World {
    /// Starts a watch, with a list after some time.
    pub(super) fn watch(&mut self, watcher: Watcher, pause: Millis) {
        self.streams += 1;
        let id = self.streams;
        let stream = Stream::new(id);
        match &watcher {
            Watcher::Replica(index, scope) => {
                if let Some(replica) = self.replicas.get_mut(*index) {
                    replica.streams.insert(scope.clone(), stream);
                }
            }
            Watcher::Agent(index) => {
                if let Some(machine) = self.machines.get_mut(*index) {
                    machine.stream = Some(stream);
                }
            }
        }
        let pause = pause + self.random.between(1..=5);
        self.queue.after(pause, Event::List(watcher, id));
    }

    fn stream(&mut self, watcher: &Watcher) -> Option<&mut Stream> {
        match watcher {
            Watcher::Replica(index, scope) => self.replicas.get_mut(*index)?.streams.get_mut(scope),
            Watcher::Agent(index) => self.machines.get_mut(*index)?.stream.as_mut(),
        }
    }

    fn scope(&self, watcher: &Watcher) -> Option<Scope> {
        match watcher {
            Watcher::Replica(_, scope) => Some(scope.clone()),
            Watcher::Agent(index) => {
                let machine = self.machines.get(*index)?;
                Some(Scope::Name(Kind::NodeImage, machine.name.clone()))
            }
        }
    }

    /// A watch makes its list.
    pub(super) fn list(&mut self, watcher: &Watcher, id: u64) {
        let now = self.now();
        if self.stream(watcher).is_none_or(|stream| stream.id != id) {
            return;
        }
        let Some(scope) = self.scope(watcher) else {
            return;
        };
        let offline = matches!(watcher, Watcher::Agent(index) if self.machines.get(*index).is_none_or(|machine| !machine.is_online));
        if offline || now < self.api_down_until || self.random.permille(self.faults.errors) {
            let pause = self.random.between(500..=5_000);
            self.queue.after(pause, Event::List(watcher.clone(), id));
            return;
        }
        let page_delay = self.random.between(1..=self.faults.watch_delay.max(1));
        let objects: Vec<_> = self
            .api
            .list(scope.kind())
            .filter(|object| scope.covers(object))
            .cloned()
            .collect();
        if let Some(stream) = self.stream(watcher) {
            stream.list(objects.iter(), now, page_delay);
            let at = stream.next_at();
            self.announce(watcher, id, at);
        }
    }

    fn announce(&mut self, watcher: &Watcher, id: u64, at: Option<Millis>) {
        if let Some(at) = at {
            self.queue.at(at, Event::Items(watcher.clone(), id));
        }
    }

    /// A watch has something to show.
    pub(super) fn items(&mut self, watcher: &Watcher, id: u64) {
        let now = self.now();
        let Some(stream) = self.stream(watcher).filter(|stream| stream.id == id) else {
            return;
        };
        if stream.next_at().is_none_or(|at| now < at) {
            return;
        }
        match watcher {
            Watcher::Replica(index, scope) => {
                if let Some(replica) = self.replicas.get_mut(*index) {
                    replica.receive(scope, now);
                }
                self.wake_replica(*index, now);
            }
            Watcher::Agent(index) => self.agent_sees(*index),
        }
        let at = self.stream(watcher).and_then(|stream| stream.next_at());
        self.announce(watcher, id, at);
    }

    /// Shows the changes that happened to the checks, and sends them to whoever watches.
    pub(super) fn publish(&mut self) {
        while let Some(change) = self.api.next_change() {
            let now = self.now();
            self.checks.changed(&change, now, &self.api);
            self.forget_removed_entries(&change);
            self.show(&change);
            if change.after.is_none()
                && let Some(before) = &change.before
            {
                let pause = self.random.between(1..=200);
                self.queue.after(pause, Event::Collect(before.uid.clone()));
                self.create_again(change.writer, before);
            }
        }
    }

    /// An entry that was removed and is made again is another order, also if it has the version of the first.
    fn forget_removed_entries(&mut self, change: &Change) {
        let Some(after) = change.after.as_ref().filter(|after| after.node_image.is_some()) else {
            return;
        };
        let index = self.by_name.get(&after.key.name);
        if let (Some(image), Some(machine)) = (&after.node_image, index.and_then(|index| self.machines.get_mut(*index)))
        {
            machine
                .pulled
                .retain(|(_, key), _| image.entry(&key.name, &key.tag).is_some());
        }
    }

    fn show(&mut self, change: &Change) {
        let Some(object) = change.object().cloned() else {
            return;
        };
        let item = match &change.after {
            Some(after) => Item::Shown(after.clone()),
            None => Item::Gone(object.clone()),
        };
        let mut watchers: Vec<Watcher> = Vec::new();
        for (index, replica) in self.replicas.iter().enumerate() {
            let scopes = replica.streams.keys().filter(|scope| scope.covers(&object));
            watchers.extend(scopes.map(|scope| Watcher::Replica(index, scope.clone())));
        }
        if object.key.kind == Kind::NodeImage
            && let Some(index) = self.by_name.get(&object.key.name)
        {
            watchers.push(Watcher::Agent(*index));
        }
        for watcher in watchers {
            self.show_to(&watcher, &item);
        }
    }

    fn show_to(&mut self, watcher: &Watcher, item: &Item) {
        let now = self.now();
        let delay = self.random.between(1..=self.faults.watch_delay.max(2));
        let expires = self.random.permille(self.faults.expiries);
        let stalls = self.random.permille(self.faults.stalls);
        let repeats = self.random.permille(self.faults.duplicates);
        let pause = self.random.between(500..=self.faults.longest_stall.max(501));
        let api_is_back = self.api_down_until;
        let Some(stream) = self.stream(watcher) else {
            return;
        };
        if expires {
            // 410: what was on its way is lost, and everything is listed anew.
            self.note(|| format!("the watch of {watcher:?} expires"));
            self.watch(watcher.clone(), pause);
            return;
        }
        if stalls {
            stream.stall(now + pause);
        }
        if now < api_is_back {
            stream.stall(api_is_back);
        }
        stream.show(item.clone(), now + delay);
        if repeats {
            stream.show(item.clone(), now + delay);
        }
        let (id, at) = (stream.id, stream.next_at());
        self.announce(watcher, id, at);
    }

    /// The garbage collector deletes what belonged to an object that is gone.
    pub(super) fn collect(&mut self, uid: &str) {
        let belongs = |value: &serde_json::Value| {
            let owners = value["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == uid))
        };
        let children: Vec<_> = self
            .api
            .list(Kind::PullJob)
            .filter(|job| belongs(&job.value))
            .cloned()
            .collect();
        for child in children {
            let call = crate::api::Call::Delete {
                key: child.key.clone(),
                uid: Some(child.uid.clone()),
            };
            self.write(&call);
        }
    }
}

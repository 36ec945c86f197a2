//! Replicas of the controller: their turns, restarts, and which of them leads.

use super::{Event, Sender, Watcher, World};
use crate::checks::{Checks, Violation};
use crate::queue::Millis;
use crate::replica::Replica;

impl World {
    /// Starts a replica, or starts it anew.
    pub(crate) fn start_replica(&mut self, index: usize) {
        self.lives += 1;
        let mut replica = Replica::new(self.lives, &self.fleet, self.resyncs, self.planted);
        let scopes = replica.restart();
        if let Some(known) = self.replicas.get_mut(index) {
            replica.clock = known.clock;
            *known = replica;
        } else {
            self.replicas.push(replica);
        }
        for scope in scopes {
            self.watch(Watcher::Replica(index, scope), 0);
        }
        self.wake_replica(index, self.now());
    }

    /// From now on this replica leads, and no other one does.
    pub(crate) fn lead(&mut self, index: usize) {
        self.terms += 1;
        for (number, replica) in self.replicas.iter_mut().enumerate() {
            replica.term = (number == index).then_some(self.terms);
        }
        self.wake_replica(index, self.now());
    }

    /// A job that the leader should have deleted by its own clock.
    pub(crate) fn overdue_job(&self) -> Option<Violation> {
        let leader = self.replicas.iter().find(|replica| replica.term.is_some())?;
        let clock = self.time().checked_add(leader.clock).ok()?;
        Checks::overdue_job(&self.api, clock)
    }

    /// Makes a replica's loop turn at a moment, unless it does before.
    pub(super) fn wake_replica(&mut self, index: usize, at: Millis) {
        let Some(replica) = self.replicas.get_mut(index) else {
            return;
        };
        if replica.turn_at.is_none_or(|known| at < known) {
            replica.turn_at = Some(at);
            self.queue.at(at, Event::ReplicaTurn(index, replica.life));
        }
    }

    pub(super) fn turn_replica(&mut self, index: usize, life: u64) {
        let (now, time) = (self.now(), self.time());
        let Some(replica) = self.replicas.get_mut(index) else {
            return;
        };
        if replica.life != life || replica.turn_at.is_none_or(|at| now < at) {
            return;
        }
        replica.turn_at = None;
        let turned = replica.turn(now, time);
        let term = replica.term;
        self.checks.turned(index, now);
        for scope in turned.starts {
            self.watch(Watcher::Replica(index, scope), 0);
        }
        for (id, call) in turned.calls {
            self.send(Sender::Replica { index, life, term }, id, call);
        }
        self.wake_replica(index, turned.again);
    }
}

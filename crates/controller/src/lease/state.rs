//! Who leads, as a state machine without IO: it is told what the Lease looked like and when, and says what to do next.
//!
//! Three rules keep two leaders from writing at once, whatever the clocks of the machines say:
//!
//! - A write of the Lease succeeds only on the version that was last seen (compare and swap), so of two candidates that
//!   both think it is free, one wins.
//! - A candidate calls a lease expired when **it** has seen it unchanged for the lease's duration. The times that stand in
//!   the Lease are for people; nobody compares them with a clock.
//! - A leader stops writing eight seconds after it **sent** its last successful renewal. A write takes at most five more,
//!   and a candidate saw that renewal after it was sent: two of the fifteen seconds are left over for clocks that run
//!   unevenly.
//!
//! What it cannot see is a machine that is suspended between asking this module and writing. Such a write still has to pass
//! the generation that every order is guarded by.

use std::time::Duration;

use tokio::time::Instant;

/// How long things take. The same in all replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// A lease unchanged for so long is free.
    pub duration: Duration,
    /// A leader renews so long after its last renewal.
    pub renew_after: Duration,
    /// A leader writes for so long after its last renewal, and no longer.
    pub write_for: Duration,
    /// A follower looks at the lease so often. Looking, not watching: a watch that hangs looks like a leader that is
    /// silent, and one small read in two seconds is nothing.
    pub look_after: Duration,
    /// After an error, the next try.
    pub retry_after: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_after: Duration::from_secs(5),
            write_for: Duration::from_secs(8),
            look_after: Duration::from_secs(2),
            retry_after: Duration::from_secs(1),
        }
    }
}

/// The part of a Lease that the election looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Who holds it; None if it was given back.
    pub holder: Option<String>,
    /// What its holder says it is good for.
    pub duration: Duration,
    /// How often it changed hands.
    pub transitions: i32,
    /// The object's resource version: another one means that somebody wrote.
    pub version: String,
}

/// What there is in place of the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observed {
    /// Nobody ever led, or somebody deleted it.
    Absent,
    /// It is there.
    Present(Record),
}

/// A write of the Lease that succeeds only if nobody wrote since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swap {
    /// The version it replaces; None creates the Lease.
    pub base: Option<String>,
    /// Who holds it from then on; None gives it back.
    pub holder: Option<String>,
    /// How often it will have changed hands.
    pub transitions: i32,
    /// The holder is another one than before.
    pub changes_hands: bool,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseStep {
    /// Read the Lease, then call [`Election::saw`] or [`Election::failed`].
    Look,
    /// Write it to become leader, then call [`Election::wrote`], [`Election::refused`] or [`Election::failed`].
    Acquire(Swap),
    /// Write it to remain leader; the same.
    Renew(Swap),
    /// Nothing before this moment.
    Wait(Instant),
}

/// Whether this replica leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leadership {
    /// Another one leads, or nobody.
    Follower,
    /// This one leads.
    Leader {
        /// Counts how often this process became leader. A new term begins with a look at everything.
        term: u64,
        /// No write may start later. Moves on with every renewal.
        may_write_until: Instant,
    },
}

impl Leadership {
    /// Whether a write may start at this moment.
    pub fn may_write(&self, now: Instant) -> bool {
        matches!(self, Self::Leader { may_write_until, .. } if now < *may_write_until)
    }

    /// The term, while this one leads.
    pub fn term(&self) -> Option<u64> {
        match self {
            Self::Follower => None,
            Self::Leader { term, .. } => Some(*term),
        }
    }
}

/// One candidate.
#[derive(Debug)]
pub struct Election {
    identity: String,
    timing: Timing,
    seen: Option<WatchEvent>,
    /// There was a Lease before, or may have been. If there is none now, somebody deleted it, and its holder may not know
    /// yet and still write. A candidate that starts just then cannot know it either: deleting the Lease of running
    /// replicas and starting another one is the one way to get two writers.
    existed: bool,
    /// A write that creates the Lease was sent, and its outcome is not known.
    creating: bool,
    /// Who creates the Lease anew leads only when every earlier holder has stopped writing.
    leads_from: Instant,
    /// What was seen may be outdated by a write of our own whose outcome is not known: look before acting.
    unsure: bool,
    look_at: Instant,
    held: Option<Held>,
    terms: u64,
}

/// What was there when we last looked, and since when it has been so by our own clock.
#[derive(Debug)]
struct WatchEvent {
    lease: Observed,
    since: Instant,
}

#[derive(Debug)]
struct Held {
    term: u64,
    renewed: Instant,
}

impl Election {
    /// A candidate that has seen nothing yet. The identity is another one for every process, restarts included.
    pub fn new(identity: String, timing: Timing, now: Instant) -> Self {
        Self {
            identity,
            timing,
            seen: None,
            existed: false,
            creating: false,
            leads_from: now,
            unsure: true,
            look_at: now,
            held: None,
            terms: 0,
        }
    }

    /// What to do at this moment.
    pub fn next(&mut self, now: Instant) -> LeaseStep {
        if self
            .held
            .as_ref()
            .is_some_and(|held| now >= held.renewed + self.timing.duration)
        {
            self.held = None;
        }
        let seen = match &self.seen {
            Some(seen) if !self.unsure => seen,
            _ => return due(now, self.look_at, LeaseStep::Look),
        };
        if let Some(held) = &self.held {
            let renew_at = held.renewed + self.timing.renew_after;
            return match due(now, renew_at, LeaseStep::Renew(self.swap(seen))) {
                LeaseStep::Wait(until) if now < self.leads_from => LeaseStep::Wait(until.min(self.leads_from)),
                step => step,
            };
        }
        let free_at = self.free_at(seen);
        if now < free_at {
            return due(now, self.look_at.min(free_at), LeaseStep::Look);
        }
        let swap = self.swap(seen);
        self.creating |= swap.base.is_none();
        LeaseStep::Acquire(swap)
    }

    /// The Lease was read; the answer came at `now`.
    pub fn saw(&mut self, now: Instant, lease: Observed) {
        self.unsure = false;
        self.look_at = now + self.timing.look_after;
        if self.holder(&lease) != Holder::Me {
            self.held = None;
        }
        if lease != Observed::Absent {
            if self.holder(&lease) == Holder::Me {
                self.created(now);
            }
            self.creating = false;
            self.existed = true;
        }
        match &mut self.seen {
            Some(seen) if version(&seen.lease) == version(&lease) => {}
            before => *before = Some(WatchEvent { lease, since: now }),
        }
    }

    /// The write that was sent at `sent` succeeded, and this is the Lease now.
    pub fn wrote(&mut self, sent: Instant, now: Instant, record: Record) {
        self.unsure = false;
        let term = self.held.take().map_or(self.terms + 1, |held| held.term);
        self.terms = term;
        self.held = Some(Held { term, renewed: sent });
        self.created(now);
        self.creating = false;
        self.existed = true;
        self.seen = Some(WatchEvent {
            lease: Observed::Present(record),
            since: now,
        });
    }

    /// Somebody wrote before us: look at once.
    pub fn refused(&mut self, now: Instant) {
        self.existed = true;
        self.unsure = true;
        self.look_at = now;
    }

    /// A read or write failed, or nobody knows whether it did: look again soon.
    pub fn failed(&mut self, now: Instant) {
        // Before the first look a failure says as much as not having been started yet.
        self.existed |= self.seen.is_some();
        self.unsure = true;
        self.look_at = now + self.timing.retry_after;
    }

    /// Whether this candidate leads at this moment.
    pub fn leadership(&self, now: Instant) -> Leadership {
        match &self.held {
            Some(held) if self.leads_from <= now && now < held.renewed + self.timing.duration => Leadership::Leader {
                term: held.term,
                may_write_until: held.renewed + self.timing.write_for,
            },
            _ => Leadership::Follower,
        }
    }

    /// The write that gives the lease back, if it is ours to give. Nothing may be written after it.
    pub fn release(&mut self) -> Option<Swap> {
        self.held.take()?;
        let Observed::Present(record) = &self.seen.as_ref()?.lease else {
            return None;
        };
        Some(Swap {
            base: Some(record.version.clone()),
            holder: None,
            transitions: record.transitions,
            changes_hands: true,
        })
    }

    /// The Lease is there now; if it is by our own creation, and not the first of all, nobody may write for a while.
    fn created(&mut self, now: Instant) {
        if self.creating && self.existed {
            self.leads_from = now + self.timing.duration;
        }
    }

    /// From when on the lease may be taken.
    fn free_at(&self, seen: &WatchEvent) -> Instant {
        let held_for = match &seen.lease {
            Observed::Present(record) if self.holder(&seen.lease) == Holder::Another => {
                record.duration.max(self.timing.duration)
            }
            Observed::Absent | Observed::Present(_) => Duration::ZERO,
        };
        seen.since + held_for
    }

    fn swap(&self, seen: &WatchEvent) -> Swap {
        let changes_hands = self.holder(&seen.lease) != Holder::Me;
        let (base, before) = match &seen.lease {
            Observed::Absent => (None, 0),
            Observed::Present(record) => (Some(record.version.clone()), record.transitions),
        };
        Swap {
            transitions: before.saturating_add(i32::from(changes_hands && base.is_some())),
            base,
            holder: Some(self.identity.clone()),
            changes_hands,
        }
    }

    fn holder(&self, lease: &Observed) -> Holder {
        match lease {
            Observed::Absent => Holder::Nobody,
            Observed::Present(record) => match record.holder.as_deref() {
                None | Some("") => Holder::Nobody,
                Some(holder) if holder == self.identity => Holder::Me,
                Some(_) => Holder::Another,
            },
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Nobody,
    Me,
    Another,
}

fn version(lease: &Observed) -> Option<&str> {
    match lease {
        Observed::Absent => None,
        Observed::Present(record) => Some(&record.version),
    }
}

fn due(now: Instant, at: Instant, step: LeaseStep) -> LeaseStep {
    if now >= at { step } else { LeaseStep::Wait(at) }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

//! Named parts of a service, each ready or not. A part that is not ready says what it waits for.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_model::escape_line;

/// All parts of a service. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Health {
    parts: Arc<Mutex<BTreeMap<&'static str, State>>>,
}

#[derive(Debug)]
enum State {
    Ready,
    Waiting(String),
    Dead(String),
}

/// One part of a service.
#[derive(Clone, Debug)]
pub struct Part {
    name: &'static str,
    health: Health,
}

impl Health {
    /// A part that is not ready yet.
    pub fn part(&self, name: &'static str) -> Part {
        let part = Part {
            name,
            health: self.clone(),
        };
        part.waiting("starting");
        part
    }

    /// What is in the way of being ready; nothing if all parts are.
    pub fn not_ready(&self) -> Option<String> {
        self.lines(|state| match state {
            State::Ready => None,
            State::Waiting(why) | State::Dead(why) => Some(why.clone()),
        })
    }

    /// What can only be mended by a restart; nothing if the service is alive.
    pub fn not_alive(&self) -> Option<String> {
        self.lines(|state| match state {
            State::Ready | State::Waiting(_) => None,
            State::Dead(why) => Some(why.clone()),
        })
    }

    fn lines(&self, say: impl Fn(&State) -> Option<String>) -> Option<String> {
        let mut lines = String::new();
        for (name, state) in self.lock().iter() {
            if let Some(why) = say(state) {
                // Writing into a text cannot fail.
                writeln!(lines, "{name}: {}", escape_line(&why)).ok();
            }
        }
        (!lines.is_empty()).then_some(lines)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, State>> {
        // The lock is only held for one insertion, so that the map is whole after a panic too.
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part {
    /// It works.
    pub fn ready(&self) {
        self.set(State::Ready);
    }

    /// It does not work yet, or not any more, and will by itself.
    pub fn waiting(&self, why: impl Into<String>) {
        self.set(State::Waiting(why.into()));
    }

    /// It will not work again in this process.
    pub fn dead(&self, why: impl Into<String>) {
        self.set(State::Dead(why.into()));
    }

    fn set(&self, state: State) {
        self.health.lock().insert(self.name, state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_when_all_parts_are() {
        let health = Health::default();
        let (api, runtime) = (health.part("api"), health.part("runtime"));
        assert_eq!(
            health.not_ready().as_deref(),
            Some("api: starting\nruntime: starting\n")
        );
        api.ready();
        runtime.waiting("no answer\napi: \u{1b}[2Jforged");
        assert_eq!(
            health.not_ready().as_deref(),
            Some("runtime: no answer api: \\u{1b}[2Jforged\n")
        );
        assert_eq!(health.not_alive(), None);
        runtime.ready();
        assert_eq!(health.not_ready(), None);
    }

    #[test]
    fn a_dead_part_asks_for_a_restart() {
        let health = Health::default();
        health.part("writer").dead("it ended");
        assert_eq!(health.not_alive().as_deref(), Some("writer: it ended\n"));
    }
}

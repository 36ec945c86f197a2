//! One watch: a list in pages, then every change in order, each some time after it happened.

use std::collections::VecDeque;

use crate::api::{Kind, Object, Shared};
use crate::queue::Millis;

/// Objects in one page of a list.
const PAGE: usize = 100;

/// What a watch is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    All(Kind),
    Namespace(Kind, String),
    Name(Kind, String),
}

impl Scope {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::All(kind) | Self::Namespace(kind, _) | Self::Name(kind, _) => *kind,
        }
    }

    pub(crate) fn covers(&self, object: &Object) -> bool {
        object.key.kind == self.kind()
            && match self {
                Self::All(_) => true,
                Self::Namespace(_, namespace) => object.key.namespace == *namespace,
                Self::Name(_, name) => object.key.name == *name,
            }
    }
}

/// What a watch shows.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// A list begins.
    Begin,
    Shown(Shared),
    Gone(Shared),
    /// The list is complete: what it did not show is gone.
    Complete,
}

/// One watch of one client.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Which of all streams: what was scheduled for an earlier one is not for this one.
    pub(crate) id: u64,
    /// None while it waits for its list.
    live: bool,
    items: VecDeque<(Millis, Item)>,
    last: Millis,
}

impl Stream {
    pub(crate) fn new(id: u64) -> Self {
        Self {
            id,
            live: false,
            items: VecDeque::new(),
            last: 0,
        }
    }

    /// The list is made now. Its pages come one after the other; changes from now on follow them.
    pub(crate) fn list<'a>(&mut self, objects: impl Iterator<Item = &'a Shared>, now: Millis, page_delay: Millis) {
        self.live = true;
        self.push(Item::Begin, now);
        let mut at = now;
        for (number, object) in objects.enumerate() {
            if number % PAGE == 0 {
                at += page_delay;
            }
            self.push(Item::Shown(object.clone()), at);
        }
        self.push(Item::Complete, at + page_delay);
    }

    /// Shows a change at a moment, but after everything before it.
    pub(crate) fn show(&mut self, item: Item, at: Millis) {
        if self.live {
            self.push(item, at);
        }
    }

    fn push(&mut self, item: Item, at: Millis) {
        self.last = self.last.max(at);
        self.items.push_back((self.last, item));
    }

    /// Everything that comes from now on comes later.
    pub(crate) fn stall(&mut self, until: Millis) {
        self.last = self.last.max(until);
        for (at, _) in &mut self.items {
            *at = (*at).max(until);
        }
    }

    /// When the next item comes.
    pub(crate) fn next_at(&self) -> Option<Millis> {
        self.items.front().map(|(at, _)| *at)
    }

    /// The next item that is there.
    pub(crate) fn pop(&mut self, now: Millis) -> Option<Item> {
        self.items.pop_front_if(|(at, _)| *at <= now).map(|(_, item)| item)
    }
}

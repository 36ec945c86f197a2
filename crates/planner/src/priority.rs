//! Work with a higher priority goes first, and none waits for ever: of ten slots that are given while work with a lower
//! priority waits, one goes to the work with a lower priority that has waited longest.
//!
//! The rule is the same for jobs under the fleet limit and for the pulls of one node.

/// How many slots in a row may pass over work with a lower priority.
pub const BYPASSES_MAX: usize = 9;

/// The slots that have passed over work with a lower priority, since such work last got one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bypasses {
    slots: usize,
    /// The highest priority that got one of them.
    highest: Option<i32>,
}

impl Bypasses {
    /// How many more may do so.
    pub fn left(self) -> usize {
        BYPASSES_MAX.saturating_sub(self.slots)
    }

    /// If no more may: the next slot is for work below this priority, which was passed over. What has come meanwhile is not the
    /// next only because its priority is lower still.
    pub fn next_below(self) -> Option<i32> {
        self.highest.filter(|_| self.left() == 0)
    }

    /// Slots were given to work of this priority while a lower one waits.
    pub fn pass(&mut self, slots: usize, priority: i32) {
        self.slots = self.slots.saturating_add(slots);
        self.highest = self.highest.max(Some(priority));
    }

    /// A slot was given to work that was passed over.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

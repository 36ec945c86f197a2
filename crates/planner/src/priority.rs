//! Work with a higher priority goes first, and none waits for ever: of ten slots that are given while work with a lower
//! priority waits, one goes to the work with a lower priority that has waited longest.
//!
//! The rule is the same for jobs under the fleet limit and for the pulls of one node.

/// How many slots in a row may pass over work with a lower priority.
pub const BYPASSES_MAX: usize = 9;

/// How many slots have passed over work with a lower priority, since such work last got one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bypasses(usize);

impl Bypasses {
    /// How many more may do so. If none, the next slot is for the lower priority.
    pub fn left(self) -> usize {
        BYPASSES_MAX.saturating_sub(self.0)
    }

    /// Slots were given to the highest priority while a lower one waits.
    pub fn pass(&mut self, slots: usize) {
        self.0 = self.0.saturating_add(slots);
    }

    /// A slot was given to a lower priority than the highest that waits.
    pub fn reset(&mut self) {
        self.0 = 0;
    }
}

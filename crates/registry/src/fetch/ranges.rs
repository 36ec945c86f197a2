//! Which bytes are asked for next. Pure: a table of blobs, and one decision at a time.
//!
//! A store takes a blob's bytes in order. So of each blob one range is at the head, which passes straight into the store, and
//! others are ahead of it, which wait in memory. Connections go to different blobs first, and only those that are left over
//! fetch ahead.

use std::ops::RangeInclusive;

/// Bounds of the size of a range where several connections share a blob.
const SHARED_RANGES: RangeInclusive<u64> = 256 << 10..=1 << 20;

/// What waits in memory is fetched again after a crash: it should not be more than this part of everything.
const LOST_PART: u64 = 32;

/// Size of a range at the head where every connection has a blob of its own. Not the whole blob, so that others can join
/// in behind it as soon as they are free.
pub(super) const LONE_RANGE: u64 = 4 << 20;

/// Ranges that may be under way or in memory beyond one for each connection, so that a slow one does not hold up the others.
const SPARE_RANGES: u64 = 2;

/// Size of a range where so many connections share the blobs of a fetch: what each of them may have to keep in memory.
pub(super) fn shared_range(total: u64, connections: usize) -> u64 {
    let ranges = connections as u64 + SPARE_RANGES;
    (total / (ranges * LOST_PART)).clamp(*SHARED_RANGES.start(), *SHARED_RANGES.end())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    Opening,
    Open,
    /// All bytes are in the store.
    Over,
}

#[derive(Debug)]
struct Blob {
    size: u64,
    state: State,
    /// Bytes in the store.
    written: u64,
    /// Bytes that are in the store or that some connection is to bring.
    handed_out: u64,
    /// The host sends no ranges: one connection brings the rest.
    by_whole: bool,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Open this blob in the store.
    Open(usize),
    /// Fetch these bytes.
    Fetch(Range),
}

/// A part of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    /// No two ranges of a fetch have the same: the same bytes may be asked for again.
    pub(super) id: u64,
    pub(super) blob: usize,
    pub(super) start: u64,
    pub(super) end: u64,
    /// Its first byte is the next that the store takes.
    pub(super) is_head: bool,
}

#[derive(Debug)]
pub(super) struct Ranges {
    blobs: Vec<Blob>,
    shared_range: u64,
    ids: u64,
}

impl Ranges {
    pub(super) fn new(sizes: impl Iterator<Item = u64>, shared_range: u64) -> Self {
        let blob = |size| Blob {
            size,
            state: State::Closed,
            written: 0,
            handed_out: 0,
            by_whole: false,
        };
        Self {
            blobs: sizes.map(blob).collect(),
            shared_range,
            ids: 0,
        }
    }

    /// The next thing to do with a free connection. `may_wait` tells whether there is memory for a range ahead.
    pub(super) fn next(&mut self, connections: usize, may_wait: bool) -> Option<Next> {
        let unfinished = self.blobs.iter().filter(|blob| blob.has_work()).count();
        if let Some(place) = self.blobs.iter().position(Blob::wants_head) {
            let length = if connections > unfinished {
                self.shared_range
            } else {
                LONE_RANGE
            };
            return Some(self.hand_out(place, length));
        }
        let open = self.blobs.iter().filter(|blob| blob.is_busy()).count();
        if open < connections
            && let Some(place) = self.blobs.iter().position(|blob| blob.state == State::Closed)
        {
            self.blobs[place].state = State::Opening;
            return Some(Next::Open(place));
        }
        let span = (connections as u64 + SPARE_RANGES) * self.shared_range;
        let ahead = self.blobs.iter().position(|blob| blob.wants_more(span))?;
        may_wait.then(|| self.hand_out(ahead, self.shared_range))
    }

    fn hand_out(&mut self, place: usize, length: u64) -> Next {
        self.ids += 1;
        Next::Fetch(self.blobs[place].hand_out(self.ids, place, length))
    }

    /// The store has so many bytes of a blob that was opened.
    pub(super) fn opened(&mut self, place: usize, written: u64) {
        let blob = &mut self.blobs[place];
        blob.written = written.min(blob.size);
        blob.handed_out = blob.written;
        blob.state = if blob.written == blob.size {
            State::Over
        } else {
            State::Open
        };
    }

    /// The store has the blob: nothing is to be done.
    pub(super) fn is_there(&mut self, place: usize) {
        self.opened(place, u64::MAX);
    }

    /// Bytes went into the store. True: they were the last.
    pub(super) fn wrote(&mut self, place: usize, bytes: u64) -> bool {
        let blob = &mut self.blobs[place];
        blob.written += bytes;
        let is_over = blob.size <= blob.written;
        if is_over {
            blob.state = State::Over;
        }
        is_over
    }

    pub(super) fn written(&self, place: usize) -> u64 {
        self.blobs[place].written
    }

    /// The host does not send ranges of this blob. What lies behind `end` is handed out anew, and in one piece.
    pub(super) fn only_by_whole(&mut self, place: usize, end: u64) {
        let blob = &mut self.blobs[place];
        blob.by_whole = true;
        blob.handed_out = end.clamp(blob.written, blob.size);
    }

    /// The blob is begun again from its first byte.
    pub(super) fn reopen(&mut self, place: usize) {
        let blob = &mut self.blobs[place];
        blob.state = State::Closed;
        blob.written = 0;
        blob.handed_out = 0;
    }
}

impl Blob {
    fn has_work(&self) -> bool {
        self.state != State::Over && self.handed_out < self.size
    }

    fn wants_head(&self) -> bool {
        self.state == State::Open && self.handed_out == self.written && self.written < self.size
    }

    fn wants_more(&self, span: u64) -> bool {
        self.state == State::Open
            && !self.by_whole
            && self.handed_out < self.size
            && self.handed_out - self.written < span
    }

    fn is_busy(&self) -> bool {
        matches!(self.state, State::Opening | State::Open)
    }

    fn hand_out(&mut self, id: u64, place: usize, length: u64) -> Range {
        let start = self.handed_out;
        let end = if self.by_whole {
            self.size
        } else {
            start.saturating_add(length).min(self.size)
        };
        self.handed_out = end;
        Range {
            id,
            blob: place,
            start,
            end,
            is_head: start == self.written,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// What comes next, with a number that is the same for all.
    fn next(ranges: &mut Ranges, connections: usize, may_wait: bool) -> Option<Next> {
        let next = ranges.next(connections, may_wait)?;
        Some(match next {
            Next::Fetch(range) => Next::Fetch(Range { id: 0, ..range }),
            Next::Open(place) => Next::Open(place),
        })
    }

    fn fetch(blob: usize, start: u64, end: u64, is_head: bool) -> Next {
        Next::Fetch(Range {
            id: 0,
            blob,
            start,
            end,
            is_head,
        })
    }

    #[test]
    fn connections_go_to_different_blobs_first_and_then_ahead() {
        let mut ranges = Ranges::new([20 * MIB, 20 * MIB].into_iter(), MIB);
        assert_eq!(next(&mut ranges, 3, true), Some(Next::Open(0)));
        assert_eq!(next(&mut ranges, 3, true), Some(Next::Open(1)));
        assert_eq!(next(&mut ranges, 3, true), None, "nothing is open yet");
        ranges.opened(0, 0);
        ranges.opened(1, 5 * MIB);
        assert_eq!(next(&mut ranges, 3, true), Some(fetch(0, 0, MIB, true)));
        assert_eq!(next(&mut ranges, 3, true), Some(fetch(1, 5 * MIB, 6 * MIB, true)));
        assert_eq!(next(&mut ranges, 3, false), None, "no memory");
        assert_eq!(next(&mut ranges, 3, true), Some(fetch(0, MIB, 2 * MIB, false)));
    }

    #[test]
    fn a_connection_that_shares_no_blob_asks_for_more_at_once() {
        let mut ranges = Ranges::new([20 * MIB, 20 * MIB].into_iter(), MIB);
        ranges.opened(0, 0);
        assert_eq!(next(&mut ranges, 2, true), Some(fetch(0, 0, LONE_RANGE, true)));
    }

    #[test]
    fn a_blob_without_ranges_is_one_piece() {
        let mut ranges = Ranges::new([20 * MIB].into_iter(), MIB);
        ranges.opened(0, 0);
        next(&mut ranges, 4, true);
        next(&mut ranges, 4, true);
        ranges.only_by_whole(0, MIB);
        assert_eq!(next(&mut ranges, 4, true), None, "the head is still on its way");
        ranges.wrote(0, MIB);
        assert_eq!(next(&mut ranges, 4, true), Some(fetch(0, MIB, 20 * MIB, true)));
        assert_eq!(next(&mut ranges, 4, true), None);
    }

    #[test]
    fn no_two_ranges_are_taken_for_one_another() {
        let mut ranges = Ranges::new([20 * MIB].into_iter(), MIB);
        ranges.opened(0, 0);
        let Some(Next::Fetch(first)) = ranges.next(4, true) else {
            panic!("a range")
        };
        ranges.reopen(0);
        ranges.opened(0, 0);
        let Some(Next::Fetch(second)) = ranges.next(4, true) else {
            panic!("a range")
        };
        assert_eq!((first.start, first.end), (second.start, second.end));
        assert_ne!(first.id, second.id);
    }

    #[rstest]
    #[case::small(10 * MIB, 8, 256 << 10)]
    #[case::middling(160 * MIB, 8, 512 << 10)]
    #[case::large(10_000 * MIB, 8, MIB)]
    #[case::nothing(0, 0, 256 << 10)]
    fn little_waits_in_memory(#[case] total: u64, #[case] connections: usize, #[case] want: u64) {
        assert_eq!(shared_range(total, connections), want);
    }

    proptest! {
        /// Whatever the sizes, what the store has already, and the order in which ranges arrive: each byte is handed out
        /// once, and heads are what the store takes next.
        #[test]
        fn every_byte_is_handed_out_once(
            sizes in proptest::collection::vec((1_u64..6 * MIB, 0_u64..6 * MIB), 1..6),
            connections in 1_usize..10,
            memory in 0_usize..5,
        ) {
            let mut ranges = Ranges::new(sizes.iter().map(|(size, _)| *size), MIB);
            let mut running: Vec<Range> = Vec::new();
            let mut got: Vec<u64> = vec![0; sizes.len()];
            for _ in 0..10_000 {
                while running.len() < connections {
                    let ahead = running.iter().filter(|range| !range.is_head).count();
                    match ranges.next(connections, ahead < memory) {
                        Some(Next::Open(place)) => {
                            let (size, there) = sizes[place];
                            got[place] = there.min(size);
                            ranges.opened(place, there);
                        }
                        Some(Next::Fetch(range)) => {
                            prop_assert!(range.start < range.end);
                            if range.is_head {
                                prop_assert_eq!(range.start, ranges.written(range.blob));
                            }
                            running.push(range);
                        }
                        None => break,
                    }
                }
                // The store takes a range whose turn it is.
                let Some(next) = running.iter().position(|range| range.start == ranges.written(range.blob)) else {
                    break;
                };
                let range = running.swap_remove(next);
                got[range.blob] += range.end - range.start;
                ranges.wrote(range.blob, range.end - range.start);
            }
            prop_assert!(running.is_empty());
            let wanted: Vec<u64> = sizes.iter().map(|(size, _)| *size).collect();
            prop_assert_eq!(got, wanted);
        }
    }
}

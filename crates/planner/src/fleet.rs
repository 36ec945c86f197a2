//! How jobs share the pulls that the whole fleet may have at once: whoever has the fewest comes first, and among equals the one
//! that was served longest ago. What a job has is never taken back; it gets nothing more until the others have caught up.

/// What a job has of the fleet's pulls. The smaller, the sooner it is its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    /// Slots that it holds.
    pub slots: usize,
    /// When it was last given one: a number that grows with every hand-out of any job.
    pub served: u64,
}

impl Share {
    /// The share of a job that comes when the last hand-out had this number. It stands before the job that was served then,
    /// and behind all others: as one that was never served it would overtake them, and a stream of small jobs would starve a
    /// large one.
    pub fn of_newcomer(last: u64) -> Self {
        Self {
            slots: 0,
            served: last.saturating_sub(1),
        }
    }
}

/// How many of the `free` slots a job may take before it is the turn of the next one that waits.
pub fn allowance(free: usize, own: Share, next: Option<Share>) -> usize {
    let Some(next) = next else {
        return free;
    };
    let ahead = usize::from(own.slots == next.slots && own.served <= next.served);
    free.min(next.slots.saturating_sub(own.slots).max(ahead))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    fn share(slots: usize, served: u64) -> Share {
        Share { slots, served }
    }

    #[rstest]
    #[case::alone(5, share(2, 9), None, 5)]
    #[case::has_fewer(5, share(2, 9), Some(share(4, 1)), 2)]
    #[case::has_fewer_than_are_free(1, share(2, 9), Some(share(4, 1)), 1)]
    #[case::has_more(5, share(4, 1), Some(share(2, 9)), 0)]
    #[case::equal_and_waits_longer(5, share(2, 1), Some(share(2, 9)), 1)]
    #[case::equal_and_was_served_later(5, share(2, 9), Some(share(2, 1)), 0)]
    #[case::nobody_was_ever_served(5, share(0, 0), Some(share(0, 0)), 1)]
    #[case::nothing_is_free(0, share(0, 0), None, 0)]
    fn takes(#[case] free: usize, #[case] own: Share, #[case] next: Option<Share>, #[case] want: usize) {
        assert_eq!(allowance(free, own, next), want);
    }

    /// Serves jobs that always want more, first in line first, until nothing is free.
    fn serve(shares: &mut [Share], free: usize, clock: &mut u64) {
        serve_those_that_want(shares, shares.len(), free, clock);
    }

    /// The same where only the first `large` jobs always want more; the others want one pull, and so nothing once they have it.
    fn serve_those_that_want(shares: &mut [Share], large: usize, mut free: usize, clock: &mut u64) {
        while 0 < free {
            let mut line: Vec<usize> = (0..shares.len())
                .filter(|job| *job < large || shares[*job].slots == 0)
                .collect();
            line.sort_by_key(|job| (shares[*job], *job));
            let next = line.get(1).map(|job| shares[*job]);
            let wants = if line[0] < large { free } else { 1 };
            let taken = allowance(wants.min(free), shares[line[0]], next);
            assert_ne!(taken, 0, "whoever is first in line can take something: {shares:?}");
            *clock += 1;
            shares[line[0]] = share(shares[line[0]].slots + taken, *clock);
            free -= taken;
        }
    }

    proptest! {
        #[test]
        fn nobody_starves(jobs in 1_usize..8, max in 1_usize..12, ends in proptest::collection::vec(0_usize..100, 0..200)) {
            let mut shares = vec![Share::default(); jobs];
            let (mut clock, mut rounds_without) = (0, vec![0_usize; jobs]);
            serve(&mut shares, max, &mut clock);
            for end in ends {
                // Somebody's pull ends.
                let holders: Vec<usize> = (0..jobs).filter(|job| 0 < shares[*job].slots).collect();
                shares[holders[end % holders.len()]].slots -= 1;
                let before = shares.clone();
                serve(&mut shares, 1, &mut clock);
                prop_assert_eq!(shares.iter().map(|share| share.slots).sum::<usize>(), max);
                let spread = shares.iter().map(|share| share.slots);
                prop_assert!(spread.clone().max().unwrap() - spread.min().unwrap() <= 1, "{:?}", shares);
                for job in 0..jobs {
                    let served = before[job].served != shares[job].served || 0 < shares[job].slots;
                    rounds_without[job] = if served { 0 } else { rounds_without[job] + 1 };
                    prop_assert!(rounds_without[job] <= jobs, "job {} waits for ever: {:?}", job, shares);
                }
            }
        }

        #[test]
        fn nobody_starves_while_new_jobs_arrive(
            large in 1_usize..5, max in 1_usize..6, rounds in proptest::collection::vec((0_usize..100, 0_usize..3), 0..200),
        ) {
            let mut shares = vec![Share::default(); large];
            let (mut clock, mut waits) = (0, vec![None; large]);
            serve(&mut shares, max, &mut clock);
            for (round, (end, arrive)) in rounds.into_iter().enumerate() {
                shares.extend(std::iter::repeat_n(Share::of_newcomer(clock), arrive));
                // Somebody's pull ends, and a job that wanted no other leaves.
                let holders: Vec<usize> = (0..shares.len()).filter(|job| 0 < shares[*job].slots).collect();
                let holder = holders[end % holders.len()];
                shares[holder].slots -= 1;
                if large <= holder {
                    shares.remove(holder);
                }
                let there = shares.len();
                serve_those_that_want(&mut shares, large, 1, &mut clock);
                for job in 0..large {
                    if 0 < shares[job].slots {
                        waits[job] = None;
                        continue;
                    }
                    // Only those that were there when it began to wait can come before it.
                    let (since, ahead) = *waits[job].get_or_insert((round, there));
                    prop_assert!(round - since <= ahead, "job {} waits for ever: {:?}", job, shares);
                }
            }
        }
    }
}

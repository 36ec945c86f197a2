//! Many seeds, spread over threads. A run itself has no threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::run::{Failure, Options, Summary, run};

/// What became of the seeds.
#[derive(Debug, Default)]
pub struct Sweep {
    /// Runs that were made.
    pub runs: u64,
    /// Events in all of them.
    pub events: u64,
    /// Runs that broke an invariant, in the order in which they ended.
    pub failures: Vec<Box<Failure>>,
}

/// Makes the runs of `count` seeds from `first` on, as long as `goes_on` says so, which is asked after each run.
pub fn sweep(
    first: u64,
    count: u64,
    threads: usize,
    options: Options,
    goes_on: impl Fn(&Sweep) -> bool + Sync,
) -> Sweep {
    let next = AtomicU64::new(0);
    let swept = Mutex::new(Sweep::default());
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if count <= number {
                return;
            }
            let end = run(first.wrapping_add(number), options);
            let mut swept = swept.lock().unwrap_or_else(PoisonError::into_inner);
            swept.runs += 1;
            match end {
                Ok(Summary { events, .. }) => swept.events += events,
                Err(failure) => swept.failures.push(failure),
            }
            if !goes_on(&swept) {
                next.store(count, Ordering::Relaxed);
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    swept.into_inner().unwrap_or_else(PoisonError::into_inner)
}

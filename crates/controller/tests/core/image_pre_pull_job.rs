//! ImagePrePullJobs from their creation to their end.

mod life;
mod scene;

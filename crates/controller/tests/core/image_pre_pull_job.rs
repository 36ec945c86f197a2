//! ImagePrePullJobs from their creation to their end.

mod edits;
mod life;
mod nodes;
mod overriders;
mod restart;
mod scene;
mod secrets;
mod tolerance;

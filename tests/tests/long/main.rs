//! Tests of the running server that go on for as long as they may: kills, damage, random calls and histories, all bounded
//! in `make test`, and longer by the targets of the Makefile.

mod cluster_crash;
mod crash;
mod damage;
mod differential;
mod disk_space;
mod fuel_sweep;
mod host_work;
mod memory;
mod serializable;

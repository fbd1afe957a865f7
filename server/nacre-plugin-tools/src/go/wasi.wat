;; What the runtime of Go asks of WASI, for a sandbox that has nothing of it: a part of each plugin in Go, which reaches nothing
;; but its memory. Equal calls get equal answers.
;;
;; There is one argument, the name of the program, which is `plugin` for each; there are no variables and no files. What is written goes nowhere. The clock counts up from 1970 by a
;; microsecond each time that it is read, and by what is slept. Random numbers are the same in each instance. To exit is a trap.
(module
  (import "env" "memory" (memory 1))

  ;; Nanoseconds since 1970. Go does not start on a clock that shows zero.
  (global $now (mut i64) (i64.const 1000))
  ;; The state of the generator (splitmix64).
  (global $chance (mut i64) (i64.const 0x6e61637265))

  ;; Errors of WASI: none, and of a file that is not open.
  (global $ok i32 (i32.const 0))
  (global $badf i32 (i32.const 8))

  ;; How many arguments there are, and their bytes. Libraries take the first for granted.
  (func (export "args_sizes_get") (param $count i32) (param $bytes i32) (result i32)
    (i32.store (local.get $count) (i32.const 1))
    (i32.store (local.get $bytes) (i32.const 7))
    (global.get $ok))

  ;; A pointer to each argument, and the bytes of each with a zero behind: `plug` and `in`.
  (func (export "args_get") (param $list i32) (param $bytes i32) (result i32)
    (i32.store (local.get $list) (local.get $bytes))
    (i32.store (local.get $bytes) (i32.const 0x67756c70))
    (i32.store16 offset=4 (local.get $bytes) (i32.const 0x6e69))
    (i32.store8 offset=6 (local.get $bytes) (i32.const 0))
    (global.get $ok))

  ;; Variables: none, in no bytes.
  (func (export "environ_sizes_get") (param $count i32) (param $bytes i32) (result i32)
    (i32.store (local.get $count) (i32.const 0))
    (i32.store (local.get $bytes) (i32.const 0))
    (global.get $ok))
  (func (export "environ_get") (param i32 i32) (result i32) (global.get $ok))

  (func (export "clock_time_get") (param $clock i32) (param $precision i64) (param $time i32) (result i32)
    (global.set $now (i64.add (global.get $now) (i64.const 1000)))
    (i64.store (local.get $time) (global.get $now))
    (global.get $ok))

  (func (export "clock_res_get") (param $clock i32) (param $resolution i32) (result i32)
    (i64.store (local.get $resolution) (i64.const 1000))
    (global.get $ok))

  (func (export "random_get") (param $to i32) (param $bytes i32) (result i32)
    (local $word i64)
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $bytes)))
        (global.set $chance (i64.add (global.get $chance) (i64.const 0x9e3779b97f4a7c15)))
        (local.set $word (global.get $chance))
        (local.set $word (i64.mul
          (i64.xor (local.get $word) (i64.shr_u (local.get $word) (i64.const 30)))
          (i64.const 0xbf58476d1ce4e5b9)))
        (local.set $word (i64.mul
          (i64.xor (local.get $word) (i64.shr_u (local.get $word) (i64.const 27)))
          (i64.const 0x94d049bb133111eb)))
        (i32.store8 (local.get $to) (i32.wrap_i64
          (i64.xor (local.get $word) (i64.shr_u (local.get $word) (i64.const 31)))))
        (local.set $to (i32.add (local.get $to) (i32.const 1)))
        (local.set $bytes (i32.sub (local.get $bytes) (i32.const 1)))
        (br $next)))
    (global.get $ok))

  ;; All is written: the sum of the lengths, of `count` pairs of pointer and length.
  (func (export "fd_write") (param $file i32) (param $parts i32) (param $count i32) (param $written i32) (result i32)
    (local $sum i32)
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $count)))
        (local.set $sum (i32.add (local.get $sum) (i32.load offset=4 (local.get $parts))))
        (local.set $parts (i32.add (local.get $parts) (i32.const 8)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next)))
    (i32.store (local.get $written) (local.get $sum))
    (global.get $ok))

  ;; Each subscription (48 bytes: 8 of user data, a tag, at 24 the time of a clock, at 40 whether it is a point in time) has
  ;; its event (32 bytes: user data, error, type) at once, as if the time had passed.
  (func (export "poll_oneoff") (param $in i32) (param $out i32) (param $count i32) (param $events i32) (result i32)
    (local $time i64)
    (i32.store (local.get $events) (local.get $count))
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $count)))
        (i64.store (local.get $out) (i64.load (local.get $in)))
        (i64.store offset=8 (local.get $out) (i64.const 0))
        (i64.store offset=16 (local.get $out) (i64.const 0))
        (i64.store offset=24 (local.get $out) (i64.const 0))
        (i32.store8 offset=10 (local.get $out) (i32.load8_u offset=8 (local.get $in)))
        (if (i32.eqz (i32.load8_u offset=8 (local.get $in)))
          (then
            (local.set $time (i64.load offset=24 (local.get $in)))
            (if (i32.eqz (i32.and (i32.load16_u offset=40 (local.get $in)) (i32.const 1)))
              (then (local.set $time (i64.add (local.get $time) (global.get $now)))))
            (if (i64.gt_u (local.get $time) (global.get $now))
              (then (global.set $now (local.get $time))))))
        (local.set $in (i32.add (local.get $in) (i32.const 48)))
        (local.set $out (i32.add (local.get $out) (i32.const 32)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next)))
    (global.get $ok))

  (func (export "sched_yield") (result i32) (global.get $ok))
  (func (export "proc_exit") (param i32) unreachable)
  (func (export "proc_raise") (param i32) (result i32) unreachable)

  ;; There are no files, by the types of the functions that ask for them.
  (func $closed_i (param i32) (result i32) (global.get $badf))
  (func $closed_ii (param i32 i32) (result i32) (global.get $badf))
  (func $closed_iii (param i32 i32 i32) (result i32) (global.get $badf))
  (func $closed_iiii (param i32 i32 i32 i32) (result i32) (global.get $badf))
  (func $closed_5i (param i32 i32 i32 i32 i32) (result i32) (global.get $badf))
  (func $closed_6i (param i32 i32 i32 i32 i32 i32) (result i32) (global.get $badf))
  (func $closed_7i (param i32 i32 i32 i32 i32 i32 i32) (result i32) (global.get $badf))
  (func $closed_l (param i32 i64) (result i32) (global.get $badf))
  (func $closed_ll (param i32 i64 i64) (result i32) (global.get $badf))
  (func $closed_lli (param i32 i64 i64 i32) (result i32) (global.get $badf))
  (func $closed_lii (param i32 i64 i32 i32) (result i32) (global.get $badf))
  (func $closed_iili (param i32 i32 i32 i64 i32) (result i32) (global.get $badf))
  (func $closed_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32) (global.get $badf))
  (func $closed_times (param i32 i32 i32 i32 i64 i64 i32) (result i32) (global.get $badf))
  (export "fd_advise" (func $closed_lli))
  (export "fd_allocate" (func $closed_ll))
  (export "fd_close" (func $closed_i))
  (export "fd_datasync" (func $closed_i))
  (export "fd_fdstat_get" (func $closed_ii))
  (export "fd_fdstat_set_flags" (func $closed_ii))
  (export "fd_fdstat_set_rights" (func $closed_ll))
  (export "fd_filestat_get" (func $closed_ii))
  (export "fd_filestat_set_size" (func $closed_l))
  (export "fd_filestat_set_times" (func $closed_lli))
  (export "fd_pread" (func $closed_iili))
  (export "fd_prestat_get" (func $closed_ii))
  (export "fd_prestat_dir_name" (func $closed_iii))
  (export "fd_pwrite" (func $closed_iili))
  (export "fd_read" (func $closed_iiii))
  (export "fd_readdir" (func $closed_iili))
  (export "fd_renumber" (func $closed_ii))
  (export "fd_seek" (func $closed_lii))
  (export "fd_sync" (func $closed_i))
  (export "fd_tell" (func $closed_ii))
  (export "path_create_directory" (func $closed_iii))
  (export "path_filestat_get" (func $closed_5i))
  (export "path_filestat_set_times" (func $closed_times))
  (export "path_link" (func $closed_7i))
  (export "path_open" (func $closed_open))
  (export "path_readlink" (func $closed_6i))
  (export "path_remove_directory" (func $closed_iii))
  (export "path_rename" (func $closed_6i))
  (export "path_symlink" (func $closed_5i))
  (export "path_unlink_file" (func $closed_iii))
  (export "sock_accept" (func $closed_iii))
  (export "sock_recv" (func $closed_6i))
  (export "sock_send" (func $closed_5i))
  (export "sock_shutdown" (func $closed_ii))
)

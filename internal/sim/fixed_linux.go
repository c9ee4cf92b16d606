//go:build linux && (amd64 || arm64)

package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// runFixed runs a Go program that does the same each time it is run with the same arguments, environment and random
// bytes. It returns an [errNotFixed] if the program cannot be run so, and the error of cmd.Wait if the program fails.
// The program is killed if it does not end within a time.
//
// Two runs of a program differ for these reasons, which runFixed takes away:
//
//   - The Go runtime seeds its random numbers from 16 bytes that the kernel leaves in the memory of the program. These
//     numbers choose among the ready cases of a select, order the timers of one instant and the elements of a map, and
//     are those of math/rand/v2. runFixed overwrites the bytes before the program begins.
//   - Goroutines run on several processors at once. With GOMAXPROCS=1 they do not. The garbage collector and the memory
//     profiler interrupt them at any time, so both are off.
//   - A thread of the runtime, the monitor, takes the processor from a goroutine that has run for 10 ms of real time. It
//     is the first thread that the runtime starts. runFixed never lets it run.
//   - The other threads hand goroutines to each other. Which thread is idle first depends on the kernel, unless they
//     share one CPU and do not interrupt each other when they wake.
func runFixed(cmd *exec.Cmd, random [16]byte, within time.Duration) error {
	runtime.LockOSThread() // only the thread that started a process can trace it
	defer runtime.UnlockOSThread()

	cmd.Env = append(cmd.Env, "GOMAXPROCS=1", "GOGC=off", "GODEBUG=memprofilerate=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return errNotFixed{err}
	}

	kill := time.AfterFunc(within, func() { _ = cmd.Process.Kill() })
	monitor, err := begin(cmd.Process.Pid, random)
	if err != nil {
		_ = cmd.Process.Kill()
	} else {
		_, _ = wait(monitor) // it ends with the process, whose end is reported only after that
	}

	errOfProgram := cmd.Wait()
	switch isLate := !kill.Stop(); {
	case isLate:
		return errNotFixed{fmt.Errorf("it was killed after %v", within)}
	case err != nil:
		return errNotFixed{err}
	}
	return errOfProgram
}

// begin lets a process run that stands before its first instruction. It returns the thread of the monitor, which does
// not run.
func begin(process int, random [16]byte) (monitor int, err error) {
	if err := waitStopped(process); err != nil {
		return 0, err
	}
	if err := setRandom(process, random); err != nil {
		return 0, err
	}
	if err := shareOneCPU(process); err != nil {
		return 0, err
	}

	if err := syscall.PtraceSetOptions(process, syscall.PTRACE_O_TRACECLONE); err != nil {
		return 0, err
	}
	if err := syscall.PtraceCont(process, 0); err != nil {
		return 0, err
	}
	if err := waitStopped(process); err != nil { // as it starts its first thread
		return 0, err
	}
	thread, err := syscall.PtraceGetEventMsg(process)
	if err != nil {
		return 0, err
	}
	if err := waitStopped(int(thread)); err != nil {
		return 0, err
	}
	return int(thread), syscall.PtraceDetach(process)
}

// setRandom overwrites the random bytes that the kernel leaves for a process.
func setRandom(process int, random [16]byte) error {
	const atRandom = 25 // AT_RANDOM of getauxval(3)
	vector, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", process))
	if err != nil {
		return err
	}

	for ; len(vector) >= 16; vector = vector[16:] {
		key := binary.NativeEndian.Uint64(vector)
		address := binary.NativeEndian.Uint64(vector[8:])
		if key == atRandom {
			_, err := syscall.PtracePokeData(process, uintptr(address), random[:])
			return err
		}
	}
	return errors.New("the kernel gives no random bytes")
}

// shareOneCPU makes all threads of a process run on one CPU, and not interrupt each other when they wake.
func shareOneCPU(process int) error {
	var all, one [128]byte // bit sets of CPUs
	size := unsafe.Sizeof(all)
	pointer := unsafe.Pointer(&all)
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, uintptr(process), size, uintptr(pointer)); errno != 0 {
		return errno
	}
	for i, b := range all {
		if b != 0 {
			one[i] = b & -b
			break
		}
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, uintptr(process), size, uintptr(unsafe.Pointer(&one))); errno != 0 {
		return errno
	}

	const batch = 3 // SCHED_BATCH
	var priority int32
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_SETSCHEDULER, uintptr(process), batch, uintptr(unsafe.Pointer(&priority))); errno != 0 {
		return errno
	}
	return nil
}

// waitStopped waits until a thread stops.
func waitStopped(thread int) error {
	status, err := wait(thread)
	if err == nil && !status.Stopped() {
		err = fmt.Errorf("it ended at its beginning, with status %#x", status)
	}
	return err
}

// wait waits until a thread stops or ends.
func wait(thread int) (status syscall.WaitStatus, err error) {
	for {
		_, err = syscall.Wait4(thread, &status, syscall.WALL, nil)
		if err != syscall.EINTR {
			return status, err
		}
	}
}

package playground

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long a test waits for an event that takes seconds on an idle machine.
const patience = 5 * time.Minute

// chromium is the browser of all tests.
var chromium context.Context

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options()...)
	defer cancel()
	chromium, cancel = chromedp.NewContext(ctx)
	defer cancel()
	code := m.Run()
	if path, err := built(); err == nil {
		os.RemoveAll(strings.TrimSuffix(path, "playground"))
	}
	return code
}

func options() []chromedp.ExecAllocatorOption {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(executable()), chromedp.WSURLReadTimeout(patience))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	return options
}

// executable returns a Chromium, or "" if there is none.
func executable() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// needBrowser skips the test if there is no browser and none is required. It starts the browser for the first test.
func needBrowser(t *testing.T) {
	t.Helper()
	switch want := os.Getenv("LOCKKIT_CHROMIUM"); {
	case want == "no":
		t.Skip("SKIPPED: LOCKKIT_CHROMIUM=no")
	case executable() != "":
	case want == "required":
		t.Fatal("there is no chromium on PATH, and LOCKKIT_CHROMIUM=required")
	default:
		t.Skip("SKIPPED: there is no chromium on PATH; on Debian make playground-test installs it")
	}
	if err := running(); err != nil {
		t.Fatal(err)
	}
}

var running = sync.OnceValue(func() error { return chromedp.Do(chromium) })

// A tab shows a page in a window of its own, and records the page's faults.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	wrong    []string
	offline  bool // the playground is gone, so requests fail
	requests []string
}

// newTab returns a tab with a size and a color scheme, light or dark.
func newTab(t *testing.T, width, height int64, scheme string) *tab {
	t.Helper()
	needBrowser(t)
	b := &tab{t: t}
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.hear))
	t.Cleanup(cancel)
	b.ctx = ctx
	// A timeout here would end the tab.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	command(b, network.Enable, network.EnableParams{})
	command(b, log.Enable, cdp.Empty{})
	command(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	b.becomes(width, height, scheme)
	t.Cleanup(func() {
		for _, wrong := range b.faults() {
			t.Error(wrong)
		}
		if t.Failed() {
			t.Log("the page says:\n" + b.text("body"))
		}
	})
	return b
}

// becomes changes the size and the color scheme of the window.
func (b *tab) becomes(width, height int64, scheme string) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
	command(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
}

func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		what := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			what += ": " + e.ExceptionDetails.Exception.Description
		}
		b.wrong = append(b.wrong, "exception: "+what)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			b.wrong = append(b.wrong, fmt.Sprintf("console: %s %s", e.Type, e.Args[0].Value))
		}
	case *log.EventEntryAdded: // also violations of the Content-Security-Policy
		// The browser logs each response that is no success. A refusal by the playground is such a response.
		refusal := e.Entry.Source == log.EntrySourceNetwork && strings.HasSuffix(e.Entry.URL, "/do")
		if e.Entry.Level == log.EntryLevelError && !refusal && !(b.offline && e.Entry.Source == log.EntrySourceNetwork) {
			b.wrong = append(b.wrong, fmt.Sprintf("log: %s %s", e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *page.EventJavascriptDialogOpening:
		b.wrong = append(b.wrong, "a dialog: "+e.Message)
	}
}

func (b *tab) faults() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wrong
}

func (b *tab) setOffline(offline bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.offline = offline
}

// patiently runs an action with patience as its timeout.
func patiently[T any](b *tab, action chromedp.Action[T]) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, action)
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if _, err := patiently(b, chromedp.Steps(actions...)); err != nil {
		b.t.Fatal(err)
	}
}

func command[P, R any](b *tab, c cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, c, params); err != nil {
		b.t.Fatal(err)
	}
}

// open opens the page of a playground, and waits until the verdict is green.
func (b *tab) open(p *program) {
	b.t.Helper()
	b.do(chromedp.Navigate(p.url))
	b.await(`document.querySelector('#verdict').dataset.ok === 'true'`)
}

// value returns the value of an expression, or of its promise.
func value[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := patiently(b, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// await waits until a condition holds in the page.
func (b *tab) await(condition string) {
	b.t.Helper()
	look := fmt.Sprintf(`new Promise(done => { (function look() { if (%s) done(true); else setTimeout(look, 50); })(); })`, condition)
	_, err := patiently(b, chromedp.Evaluate[bool](look, chromedp.EvalAwaitPromise))
	if errors.Is(err, context.DeadlineExceeded) {
		b.t.Fatalf("after %v there is not: %s", patience, condition)
	}
	if err != nil {
		b.t.Fatalf("%s: %v", condition, err)
	}
}

// press presses a button with the keyboard, because every button must work with it.
func (b *tab) press(selector string) {
	b.t.Helper()
	b.await(fmt.Sprintf(`document.querySelector(%[1]q) && document.querySelector(%[1]q).getAttribute('aria-busy') !== 'true'`, selector))
	b.do(chromedp.Focus(chromedp.CSS(selector)), chromedp.KeyEvent("\r"))
}

func (b *tab) text(selector string) string {
	text, err := patiently(b, chromedp.Evaluate[string](fmt.Sprintf(`document.querySelector(%q).innerText`, selector)))
	if err != nil {
		return err.Error()
	}
	return text
}

// run runs statements in the page.
func (b *tab) run(statements string) {
	b.t.Helper()
	value[bool](b, "(() => { "+statements+"; return true; })()")
}

// show sets how many seconds the timeline shows.
func (b *tab) show(seconds string) {
	b.t.Helper()
	b.run(fmt.Sprintf(`const span = document.querySelector('#span'); span.value = %q; span.dispatchEvent(new Event('change'))`, seconds))
}

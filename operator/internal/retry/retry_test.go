package retry_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kcplane/kcp/operator/internal/retry"
)

func TestAnObjectThatFailsIsTriedAgainWithinAMinute(t *testing.T) {
	limiter := retry.Options().RateLimiter
	delay := time.Duration(0)
	for range 100 {
		delay = limiter.When(reconcile.Request{})
	}
	if delay != time.Minute {
		t.Errorf("the 100th attempt is after %v", delay)
	}
}

func TestAllControllersHaveTheseOptions(t *testing.T) {
	files, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	controllers := 0
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		made := strings.Count(string(source), "ctrl.NewControllerManagedBy(")
		if with := strings.Count(string(source), "retry.Options()"); with != made && !strings.HasSuffix(file, "_test.go") {
			t.Errorf("%s creates %d controllers, %d of them with the options of this package", file, made, with)
		}
		controllers += made
	}
	if controllers < 6 {
		t.Errorf("%d controllers were found", controllers)
	}
}

package budget

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestEachKeyHasItsOwnBudget(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	b := New(1, 2, 2, clock)
	count := func(key string) (allowed int) {
		for range 5 {
			if b.Allow(key) {
				allowed++
			}
		}
		return allowed
	}
	if one, other := count("a"), count("b"); one != 2 || other != 2 {
		t.Errorf("got %d and %d events, want 2 each", one, other)
	}
	clock.SetTime(clock.Now().Add(time.Second))
	if got := count("a"); got != 1 {
		t.Errorf("after a second: got %d events, want 1", got)
	}
	for _, key := range []string{"c", "d", "e"} {
		count(key)
	}
	if b.keys.Len() != 2 {
		t.Errorf("got %d budgets in memory, want 2", b.keys.Len())
	}
}

func TestTheNetworkOfAnAddress(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:443": "192.0.2.1/32", "192.0.2.1": "192.0.2.1/32", "[::ffff:192.0.2.1]:1": "192.0.2.1/32",
		"[2001:db8::1]:443": "2001:db8::/64", "2001:db8::2": "2001:db8::/64", "[fe80::1%eth0]:1": "fe80::/64",
		"": "invalid Prefix", "host:1": "invalid Prefix", "@": "invalid Prefix",
	} {
		if got := Network(address).String(); got != want {
			t.Errorf("%q: got %s, want %s", address, got, want)
		}
	}
}

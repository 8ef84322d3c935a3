package outbound

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// onMachine returns networks as seen from a machine with an address in each of two private networks.
func onMachine(t *testing.T, names ...string) *Networks {
	t.Helper()
	n, err := NewNetworks(names)
	if err != nil {
		t.Fatal(err)
	}
	n.addresses = func() ([]net.Addr, error) {
		return []net.Addr{&net.IPNet{IP: net.IPv4(10, 1, 2, 3), Mask: net.CIDRMask(24, 32)}, &net.IPNet{IP: net.ParseIP("fd12::3"), Mask: net.CIDRMask(64, 128)}}, nil
	}
	return n
}

func TestEveryAddressIsOfOneKind(t *testing.T) {
	addresses := map[string][]string{
		Public: {"1.1.1.1", "11.0.0.1", "172.32.0.1", "192.169.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"},
		Private: {
			"10.1.2.4", "172.16.0.1", "172.31.255.255", "192.168.0.1", "100.64.0.1", "198.18.0.1", "192.0.0.1", "0.1.2.3", "240.0.0.1", "fd12::4", "fc00::1",
			"fec0::1", "::ffff:10.1.2.4", "::10.1.2.4", "64:ff9b::10.1.2.4", "64:ff9b:1::1", "2002:a01:204::1", "2001::1", "2001:db8::1", "4000::1", "9000::1",
		},
		Machine: {"127.0.0.1", "127.255.0.1", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "0.0.0.0", "::", "10.1.2.3", "::ffff:10.1.2.3", "fd12::3"},
		"none": {
			"169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "169.254.1.1", "fe80::1", "fe80::1%eth0", "224.0.0.1", "ff02::1", "255.255.255.255",
			"100.100.100.200", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254",
		},
	}
	for _, kind := range []string{Public, Private, Machine} {
		n := onMachine(t, kind)
		for of, texts := range addresses {
			for _, text := range texts {
				if got := n.contain(netip.MustParseAddr(text)); got != (of == kind) {
					t.Errorf("%s is in %s: %t", text, kind, got)
				}
			}
		}
	}
	for _, text := range slices.Concat(addresses[Public], addresses[Private], addresses["none"]) {
		if n := onMachine(t, "0.0.0.0/0", "::/0"); !n.contain(netip.MustParseAddr(text)) {
			t.Errorf("%s is not in all networks", text)
		}
		if n := onMachine(t); n.contain(netip.MustParseAddr(text)) {
			t.Errorf("%s is in no network", text)
		}
	}
	for _, text := range addresses[Machine] {
		if n := onMachine(t, Public, Private, "0.0.0.0/0", "::/0"); n.contain(netip.MustParseAddr(text)) {
			t.Errorf("%s is the machine's, and is called", text)
		}
	}
	blind := onMachine(t, Public)
	blind.addresses = func() ([]net.Addr, error) { return nil, errors.New("unknown") }
	if blind.contain(netip.MustParseAddr("1.1.1.1")) {
		t.Error("an address is called that may be the machine's")
	}
}

func TestInvalidNetworksAreRefused(t *testing.T) {
	for _, text := range []string{"", "all", "10.0.0.1", "10.0.0.1/8", "localhost", "127.0.0.0/8", "::1/128"} {
		if _, err := NewNetworks([]string{text}); err == nil || !strings.Contains(err.Error(), "--tenant-webhook-networks") {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func TestAServerOnLocalhostMayCallAllNetworksByDefault(t *testing.T) {
	for _, test := range []struct {
		base, external string
		local          bool
	}{
		{"https://localhost:6443", "https://localhost:6443", true}, {"https://127.0.0.1:6443", "https://[::1]", true},
		{"https://kcp.ns.svc:6443", "https://localhost:6443", false}, {"https://localhost", "https://kcp.example.com", false}, {"https://10.0.0.1", "https://10.0.0.1", false},
	} {
		want := []string{Public}
		if test.local {
			want = []string{Public, Private, Machine}
		}
		if got := StandardNetworks(test.base, test.external); !reflect.DeepEqual(got, want) {
			t.Errorf("%s, %s: got %v", test.base, test.external, got)
		}
	}
}

// A name may mean another address each time, and a host that may be called may redirect to one that may not.
func TestTheConnectedAddressDecides(t *testing.T) {
	asked := 0
	host := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer host.Close()
	address := host.Listener.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	get := func(url string, names ...string) error {
		n, err := NewNetworks(names)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true}}
		response, err := client.Get(url)
		if err == nil {
			response.Body.Close()
		}
		return err
	}
	for _, url := range []string{host.URL, "http://localhost:" + port} {
		err := get(url, Public, Private)
		if err == nil || asked > 0 || !strings.Contains(err.Error(), "does not call") || (strings.Contains(url, "localhost") && strings.Contains(err.Error(), "127.0.0.1")) {
			t.Errorf("%s: got %v, asked %d times", url, err, asked)
		}
	}
	if err := get(host.URL, Machine); err != nil || asked != 1 {
		t.Errorf("got %v, asked %d times", err, asked)
	}
	leading := httptest.NewServer(http.RedirectHandler("http://169.254.169.254/latest", http.StatusTemporaryRedirect))
	defer leading.Close()
	if err := get(leading.URL, Machine, Public, Private); err == nil || !strings.Contains(err.Error(), "does not call 169.254.169.254:80") {
		t.Errorf("got %v", err)
	}
}

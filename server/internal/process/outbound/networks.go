package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// The kinds of networks.
const (
	// Public are those of the internet.
	Public = "public"
	// Private are those that are not routed there.
	Private = "private"
	// Machine is the one that the server runs on: the loopback addresses, and those of its interfaces.
	Machine = "machine"
)

// networksFlag names the networks where tenants may have the server call.
const networksFlag = "tenant-webhook-networks"

// Networks are those where the server calls whom tenants name: their webhooks and issuers. What a name means is judged by the
// address that is about to be connected to, so that it does not matter what it meant before, nor where a host redirects to.
type Networks struct {
	kinds    []string
	prefixes []netip.Prefix
	// addresses returns those of the machine.
	addresses func() ([]net.Addr, error)
}

// NewNetworks returns networks by their kinds and prefixes. Addresses of the machine are in none but Machine; others that only the
// neighbours on a link, or the provider of the machine, have are in no kind and must be named by a prefix.
func NewNetworks(names []string) (*Networks, error) {
	n := &Networks{addresses: net.InterfaceAddrs}
	for _, name := range names {
		if slices.Contains([]string{Public, Private, Machine}, name) {
			n.kinds = append(n.kinds, name)
			continue
		}
		prefix, err := netip.ParsePrefix(name)
		if err != nil || prefix != prefix.Masked() {
			return nil, fmt.Errorf("--%s: %q is none of %s, %s and %s, and no network such as 10.0.0.0/8", networksFlag, name,
				Public, Private, Machine)
		}
		if prefix.Addr().IsLoopback() {
			return nil, fmt.Errorf("--%s: %s is on the machine that the server runs on: say %s", networksFlag, name, Machine)
		}
		n.prefixes = append(n.prefixes, prefix)
	}
	return n, nil
}

// AddNetworksFlag adds the flag that names the networks.
func AddNetworksFlag(fs *pflag.FlagSet, names *[]string) {
	fs.StringSliceVar(names, networksFlag, *names,
		"Networks where the server calls the webhooks and issuers that tenants name: "+Public+", "+Private+
			", "+Machine+" (which it runs on), or networks such as 10.0.0.0/8. By default "+Public+
			", and the other two if the server has no URL but one of localhost. If a proxy is configured by the environment, it is what is called.")
}

// StandardNetworks are those of a server that is told of none: who reaches it by localhost reaches by themselves what it could
// reach for them.
func StandardNetworks(served ...string) []string {
	for _, text := range served {
		u, err := url.Parse(text)
		if err != nil {
			return []string{Public}
		}
		if ip := net.ParseIP(u.Hostname()); !strings.EqualFold(u.Hostname(), "localhost") && !ip.IsLoopback() {
			return []string{Public}
		}
	}
	return []string{Public, Private, Machine}
}

// errElsewhere is why nothing is connected to.
var errElsewhere = errors.New("tenants may not lead the server there")

// elsewhereError is why an address is not called. Its text says nothing that tenants may not know.
type elsewhereError struct{ address string }

// Error implements error.
func (e *elsewhereError) Error() string {
	return fmt.Sprintf("the server does not call %s, which is in a network where tenants may not lead it: an administrator of the "+
		"installation can allow that by --%s", e.address, networksFlag)
}

// DialContext connects to an address if that is in one of the networks.
func (n *Networks) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Control: func(_, resolved string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(resolved)
		if err != nil || !n.contain(to.Addr()) {
			return errElsewhere
		}
		return nil
	}}
	connection, err := dialer.DialContext(ctx, network, address)
	if errors.Is(err, errElsewhere) {
		// Where the name leads is not for tenants to know.
		return nil, &elsewhereError{address}
	}
	return connection, err
}

// notPublic are unicast addresses of machines that are not in the internet. Of IPv6, the internet is 2000::/3.
var notPublic = prefixes("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16",
	"198.18.0.0/15", "240.0.0.0/4",
	"::/3", "2001::/23", "2001:db8::/32", "2002::/16", "4000::/2", "8000::/1")

// providers of machines answer at these, with secrets of the machine.
var providers = prefixes("100.100.100.200/32", "168.63.129.16/32", "fd00:ec2::/32", "fd20:ce::/32")

// translated is where networks without IPv4 have its addresses.
var translated = netip.MustParsePrefix("64:ff9b::/96")

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// contain tells whether an address is in one of the networks.
func (n *Networks) contain(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if translated.Contains(a) {
		bytes := a.As16()
		a, _ = netip.AddrFromSlice(bytes[12:])
	}
	within := func(p netip.Prefix) bool { return p.Contains(a) }
	switch {
	case n.ofMachine(a):
		return slices.Contains(n.kinds, Machine)
	case slices.ContainsFunc(n.prefixes, within):
		return true
	case !a.IsGlobalUnicast(), slices.ContainsFunc(providers, within):
		return false
	case slices.ContainsFunc(notPublic, within):
		return slices.Contains(n.kinds, Private)
	}
	return slices.Contains(n.kinds, Public)
}

// ofMachine tells whether the server would call the machine that it runs on. It would by the unspecified address, too.
func (n *Networks) ofMachine(a netip.Addr) bool {
	if a.IsLoopback() || a.IsUnspecified() {
		return true
	}
	own, err := n.addresses()
	return err != nil || slices.ContainsFunc(own, func(o net.Addr) bool {
		p, err := netip.ParsePrefix(o.String())
		return err != nil || p.Addr().Unmap().WithZone("") == a
	})
}

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
	// Public are the networks of the internet.
	Public = "public"
	// Private are networks that are not routed in the internet.
	Private = "private"
	// Machine is the machine of the server: the loopback addresses and the addresses of its interfaces.
	Machine = "machine"
)

// networksFlag is the flag with the networks in which the server calls hosts that tenants configure.
const networksFlag = "tenant-webhook-networks"

// Networks are the networks in which the server calls webhooks and issuers of tenants. The server checks each address immediately before it
// connects. Therefore earlier results of name resolution and redirects do not matter.
type Networks struct {
	kinds    []string
	prefixes []netip.Prefix
	// addresses returns the addresses of the machine.
	addresses func() ([]net.Addr, error)
}

// NewNetworks returns networks by their kinds and prefixes. Addresses of the machine are only in Machine. Link-local addresses and
// addresses of the provider of the machine are in no kind; a prefix must name them.
func NewNetworks(names []string) (*Networks, error) {
	n := &Networks{addresses: net.InterfaceAddrs}
	for _, name := range names {
		if slices.Contains([]string{Public, Private, Machine}, name) {
			n.kinds = append(n.kinds, name)
			continue
		}
		prefix, err := netip.ParsePrefix(name)
		if err != nil || prefix != prefix.Masked() {
			return nil, fmt.Errorf("--%s: %q is neither %s, %s or %s, nor a network such as 10.0.0.0/8", networksFlag, name,
				Public, Private, Machine)
		}
		if prefix.Addr().IsLoopback() {
			return nil, fmt.Errorf("--%s: %s is on the machine of the server: use %s", networksFlag, name, Machine)
		}
		n.prefixes = append(n.prefixes, prefix)
	}
	return n, nil
}

// AddNetworksFlag adds the flag that names the networks.
func AddNetworksFlag(fs *pflag.FlagSet, names *[]string) {
	fs.StringSliceVar(names, networksFlag, *names,
		"Networks in which the server calls webhooks and issuers of tenants: "+Public+", "+Private+", "+Machine+
			" (the machine of the server), or networks such as 10.0.0.0/8. Defaults to "+Public+
			", and to all three if all URLs of the server are on localhost. With a proxy from the environment, the address of the proxy is checked.")
}

// StandardNetworks returns the default networks of a server. Users who reach the server on localhost can reach these hosts themselves.
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

// errElsewhere is the cause of refused connections.
var errElsewhere = errors.New("tenants may not use this address")

// elsewhereError is the error for an address that is not called. Its text contains nothing that tenants may not know.
type elsewhereError struct{ address string }

// Error implements error.
func (e *elsewhereError) Error() string {
	return fmt.Sprintf("the server does not call %s, which is in a network that tenants may not use: an administrator of the "+
		"installation can allow it with --%s", e.address, networksFlag)
}

// DialContext connects to an address if it is in one of the networks.
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
		// Tenants must not learn the addresses of the name.
		return nil, &elsewhereError{address}
	}
	return connection, err
}

// notPublic are unicast addresses that are not in the internet. The internet uses 2000::/3 of IPv6.
var notPublic = prefixes("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16",
	"198.18.0.0/15", "240.0.0.0/4",
	"::/3", "2001::/23", "2001:db8::/32", "2002::/16", "4000::/2", "8000::/1")

// providers are addresses at which providers of machines serve secrets of the machine.
var providers = prefixes("100.100.100.200/32", "168.63.129.16/32", "fd00:ec2::/32", "fd20:ce::/32")

// translated is the prefix of IPv4 addresses in networks without IPv4.
var translated = netip.MustParsePrefix("64:ff9b::/96")

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// contain reports whether an address is in one of the networks.
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

// ofMachine reports whether an address is on the machine of the server. The unspecified address is, too.
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

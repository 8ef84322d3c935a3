package mount

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kcplane/kcp/server/internal/process/outbound"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const httpsPort = "443"

// Hosts are the hosts that mounts may use.
type Hosts struct {
	own   sets.Set[string] // host:port of this installation
	known sets.Set[string] // host:port, or .domain:port for all hosts below a domain
}

// NewHosts returns the hosts of the URLs of this installation, and additional hosts: host, host:port, *.domain or *.domain:port. The
// default port is that of HTTPS.
func NewHosts(installation, known []string) (*Hosts, error) {
	h := &Hosts{own: sets.New[string](), known: sets.New[string]()}
	for _, text := range installation {
		u, err := url.Parse(text)
		if err != nil || u.Hostname() == "" {
			return nil, fmt.Errorf("%q is not the URL of a server", text)
		}
		h.own.Insert(address(u))
	}
	for _, text := range known {
		u, err := url.Parse("https://" + strings.TrimPrefix(text, "*"))
		if err != nil || u.Host == "" || u.Hostname() == "." || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil ||
			strings.HasPrefix(text, "*") != strings.HasPrefix(u.Host, ".") || strings.Contains(u.Host, "*") {
			return nil, fmt.Errorf("%q is not a host: use host, host:port, *.domain or *.domain:port", text)
		}
		h.known.Insert(address(u))
	}
	return h, nil
}

// address returns the host and port of a URL.
func address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = httpsPort
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// Check returns the parsed URL of a mount, and whether it is in this installation. It returns an error if mounts may not use the URL.
func (h *Hosts) Check(text string) (target *url.URL, own bool, err error) {
	u, err := outbound.Location(text)
	if err != nil {
		return nil, false, err
	}
	where := address(u)
	if h.own.Has(where) {
		return u, true, checkOwn(u.Path)
	}
	for known := where; ; {
		if h.known.Has(known) {
			return u, false, nil
		}
		// The next larger domain: a.b.c, .b.c, .c
		dot := strings.IndexByte(known[1:], '.')
		if dot < 0 || net.ParseIP(u.Hostname()) != nil {
			return nil, false, fmt.Errorf(
				"mounts may not use the host %s; an administrator of the installation can allow it with --mount-proxy-hosts",
				where,
			)
		}
		known = known[1+dot:]
	}
}

// checkOwn refuses paths of this installation other than workspaces and virtual workspaces: a longer path would turn a request for one
// object into a request for another.
func checkOwn(path string) error {
	if strings.HasPrefix(path, "/services/") {
		return nil
	}
	name, ok := strings.CutPrefix(strings.TrimSuffix(path, "/"), "/clusters/")
	if !ok || !logicalcluster.ValidPath(name) {
		return errors.New("it is neither that of a workspace, …/clusters/<path>, nor of a virtual workspace")
	}
	return nil
}

package server

import (
	"fmt"

	"github.com/kcplane/kcp/server/internal/request/mount"
)

// buildMounts makes what passes requests for mounted workspaces on.
func (c *config) buildMounts() error {
	var err error
	o := c.opts.MountProxy
	installation := []string{c.opts.ShardBaseURL, c.opts.ShardExternalURL, c.opts.ShardVirtualWorkspaceURL}
	if c.mountHosts, err = mount.NewHosts(installation, o.Hosts); err != nil {
		return fmt.Errorf("--mount-proxy-hosts: %w", err)
	}
	certificate, _ := c.generic.SecureServing.Cert.CurrentCertKeyContent()
	c.mounts, err = mount.NewProxy(mount.Config{
		Hosts: c.mountHosts, Workspaces: c.set.Workspaces, ServingCertificate: certificate, Files: o.Files,
		Serializer: c.generic.Serializer,
	})
	return err
}

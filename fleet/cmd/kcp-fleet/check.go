package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/cert"
)

// checkPause is the time between two attempts.
const checkPause = 2 * time.Second

// check reports whether a controller is ready, and serves the certificate that it should.
type check struct {
	url, certFile string
	now           func() time.Time
}

func checkCommand() *cobra.Command {
	c := check{now: time.Now}
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "check", Short: "Check that the controller is ready, and report what is missing", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			_ = wait.PollUntilContextTimeout(cmd.Context(), checkPause, timeout, true, func(ctx context.Context) (bool, error) {
				err = c.run(ctx)
				return err == nil, nil
			})
			if err == nil {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "The controller at %s is ready.\n", c.url)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&c.url, "url", "", "URL of the controller.")
	cmd.Flags().StringVar(&c.certFile, "tls-cert-file", "", "File with the certificate that the controller should serve.")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "Time within which the controller must be ready.")
	_, _ = cmd.MarkFlagRequired("url"), cmd.MarkFlagRequired("tls-cert-file") // both flags exist
	return cmd
}

func (c check) run(ctx context.Context) error {
	content, err := os.ReadFile(c.certFile)
	if err != nil {
		return err
	}
	wanted, err := cert.ParseCertsPEM(content)
	if err != nil {
		return fmt.Errorf("%s: %w; create a Secret with a serving certificate at the key tls.crt", c.certFile, err)
	}
	if c.now().After(wanted[0].NotAfter) {
		return fmt.Errorf("the serving certificate expired on %s: renew it", wanted[0].NotAfter.Format(time.DateOnly))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/readyz", nil)
	if err != nil {
		return err
	}
	// The host name in the certificate is that for the agents. What must be true is that the certificate is this one.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, VerifyConnection: is(wanted[0])}}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("the controller does not respond: %w; read its log", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the controller is not ready: %s %s; read its log", response.Status, strings.TrimSpace(string(text)))
	}
	return nil
}

// is returns what verifies that a server has a certificate.
func is(wanted *x509.Certificate) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 || !bytes.Equal(state.PeerCertificates[0].Raw, wanted.Raw) {
			return errors.New("it serves another certificate than the one in its Secret, which takes up to two minutes to reach its pod")
		}
		return nil
	}
}

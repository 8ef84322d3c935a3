package peers

import (
	"crypto/x509"
	"errors"
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// remembered is the number of valid certificates that a Verifier remembers. An installation has fewer shards and proxies.
	remembered = 1024
	// rememberedFor limits how long a certificate counts as valid after its chain was verified.
	rememberedFor = time.Minute
)

// Verifier verifies client certificates and remembers those that are valid, because peers send many requests with one certificate, and a
// signature takes as much processor time as a small request.
type Verifier struct {
	authorities Authorities
	clock       clock.PassiveClock
	valid       *lru.Cache // of verification, by *x509.Certificate, which all requests of a connection share
}

// verification says with which authorities a certificate is valid, and until when.
type verification struct {
	roots *x509.CertPool
	until time.Time
}

// NewVerifier returns a Verifier of certificates that authorities have signed.
func NewVerifier(authorities Authorities, clock clock.PassiveClock) *Verifier {
	return &Verifier{authorities: authorities, clock: clock, valid: lru.New(remembered)}
}

// Verify returns an error unless the first of the presented certificates is a valid client certificate. The connection must have shown that
// the client has its key.
func (v *Verifier) Verify(presented []*x509.Certificate) error {
	if len(presented) == 0 {
		return errors.New("no client certificate")
	}
	options, ok := v.authorities.VerifyOptions()
	if !ok {
		return errors.New("the authorities of client certificates are not loaded")
	}
	now := v.clock.Now()
	if v.remembers(presented[0], options.Roots, now) {
		return nil
	}
	options.CurrentTime = now
	chains, err := verify(presented, options)
	if err != nil {
		return err
	}
	v.valid.Add(presented[0], verification{roots: options.Roots, until: validUntil(chains[0], now.Add(rememberedFor))})
	return nil
}

// Remembers reports whether Verify has lately found the first of the presented certificates valid, and it still is.
func (v *Verifier) Remembers(presented []*x509.Certificate) bool {
	if len(presented) == 0 {
		return false
	}
	options, ok := v.authorities.VerifyOptions()
	return ok && v.remembers(presented[0], options.Roots, v.clock.Now())
}

func (v *Verifier) remembers(certificate *x509.Certificate, roots *x509.CertPool, now time.Time) bool {
	known, ok := v.valid.Get(certificate)
	if !ok {
		return false
	}
	k := known.(verification)
	return k.roots == roots && now.Before(k.until)
}

// validUntil returns when the first certificate of a chain expires, but not later than latest.
func validUntil(chain []*x509.Certificate, latest time.Time) time.Time {
	for _, certificate := range chain {
		if certificate.NotAfter.Before(latest) {
			latest = certificate.NotAfter
		}
	}
	return latest
}

func verify(presented []*x509.Certificate, options x509.VerifyOptions) ([][]*x509.Certificate, error) {
	if options.Intermediates == nil {
		options.Intermediates = x509.NewCertPool()
	} else {
		options.Intermediates = options.Intermediates.Clone()
	}
	for _, certificate := range presented[1:] {
		options.Intermediates.AddCert(certificate)
	}
	options.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return presented[0].Verify(options)
}

// Identify returns the identity of a peer from the certificates that it presented, its own first.
func (v *Verifier) Identify(presented []*x509.Certificate) (Identity, error) {
	if err := v.Verify(presented); err != nil {
		return Identity{}, err
	}
	return IdentityOf(presented[0])
}
